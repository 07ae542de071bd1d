"""The database: `tables` filled from a folder, and asked."""

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import time
from urllib.parse import quote, unquote_to_bytes

import sqlalchemy as sql

from datago.server.attributes import NULL, attribute_rows, type_of
from datago.server.index import VERSION
from datago.server.tables import CHILDREN, STRUCTURED, attributes, datasets, files, images, latents, meta, metadata, tags

BATCH = 500  # rows written, or deleted, in one statement: below every database's limit on parameters
THREADS = 40  # that ask at once: those that starlette answers with
SECONDS = 55  # that a statement may take for an answer: as long as the hosted service's searches
KEPT = 2**16  # answers about files: who trains comes for each of them again
STEPS = 2**16  # of SQLite's machine, between two looks at the clock


class Store:
    """The index of one folder. On disk it is its owner's alone to read, as it holds the secret that urls are signed with.

    Args:
        url: sqlite:///path, postgresql://…; "" and sqlite:// are SQLite in memory.

    Attributes:
        tags, datasets: the names in use, each with the number of its images.
        latent_types: the names in use.
        attribute_types: name to one of `attributes.TYPES`.
        secret: bytes to sign urls with, that nobody else knows; the same for as long as the index is.

    Raises:
        OSError: the index is somebody else's.
    """

    def __init__(self, url):
        url = sql.make_url(re.sub("^postgres(ql)?://", "postgresql+psycopg://", url or "sqlite://"))
        self._is_sqlite = url.get_backend_name() == "sqlite"
        options = {"pool_size": THREADS + 1, "hide_parameters": True}
        in_memory = self._is_sqlite and url.database in (None, "", ":memory:")
        if self._is_sqlite:
            options["connect_args"] = {"timeout": 60}  # for another server's index to be made
        if in_memory:
            # A memory that connections of all threads share; it is there as long as one of them is.
            url = sql.make_url("sqlite:///file:datago?mode=memory&cache=shared&uri=true")
            options |= {"poolclass": sql.QueuePool, "connect_args": {"check_same_thread": False}}
        self.engine = sql.create_engine(url, **options)
        self._keeper = self.engine.connect() if in_memory else None
        self.file = functools.lru_cache(KEPT)(self._file)
        was_open = self._is_sqlite and self._close_to_others()
        with self.engine.begin() as connection:
            self.secret = bytes.fromhex(_prepare(connection, was_open))

    def close(self):
        if self._keeper:
            self._keeper.close()
        self.engine.dispose()

    def _close_to_others(self):
        """Takes all rights to the index's files from others, and says whether they had any."""
        with self.engine.connect() as connection:
            path = connection.exec_driver_sql("PRAGMA database_list").first()[2]
        was_open = False
        for name in [path + end for end in ("", "-journal", "-wal", "-shm")] if path else []:
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(name)
                if state.st_uid != os.geteuid():
                    raise PermissionError(f"the index {name} is another user's")
                if state.st_mode & 0o077:
                    os.chmod(name, 0o600)
                    was_open = True
        return was_open

    def sync(self, entries, fingerprint, describe, report):
        """Makes the index say what `entries` do, in one transaction; unchanged images are not described again.

        Args:
            entries: `walk.Entry`s.
            fingerprint, describe: of an entry; while the first is the same, so is the record that the second makes.
            report: a `walk.Report`.

        Returns:
            How many images were written, left as they were, and removed; a changed one was written and removed.
        """
        with self.engine.begin() as connection:
            rows = connection.execute(sql.select(images.c.location, images.c.fingerprint, images.c.id)).all()
            stale = {row.location: (row.fingerprint, row.id) for row in rows}
            owners = {row.id: row.location for row in rows}
            before, kept, pending, obsolete = len(rows), 0, {}, []
            del rows
            for entry in entries:
                known, mark = stale.pop(entry.image.reference, None), fingerprint(entry)
                if known and known[0] == mark:
                    kept += 1
                    continue
                if known and known[0] is not None:
                    obsolete.append(known[1])
                    del owners[known[1]]
                try:
                    record = {**describe(entry), "fingerprint": mark}
                except OSError as error:
                    report.add(f"file cannot be read: {error.strerror}", entry.image.path)
                    continue
                holder = owners.get(record["id"])
                if holder in stale:  # not met yet on this walk: has it gone, or is its turn still to come?
                    stale[holder] = (None, stale[holder][1])
                    obsolete.append(record["id"])
                elif holder is not None:
                    where = f"{entry.image.path}: {record['id']} is that of {holder}"
                    report.add("id is taken, image passed over", where)
                    continue
                owners[record["id"]] = entry.image.reference
                pending[record["id"]] = record
                if len(pending) >= BATCH:
                    _write(connection, obsolete, pending)
            gone = [identity for mark, identity in stale.values() if mark is not None]
            _write(connection, obsolete + gone, pending)
            total = connection.scalar(sql.select(sql.func.count()).select_from(images))
        self._load_names()
        return total - kept, kept, before - kept

    def _load_names(self):
        with self.engine.connect() as connection:
            for name, column in (("tags", tags.c.tag), ("datasets", datasets.c.dataset)):
                query = sql.select(column, sql.func.count()).group_by(column)
                setattr(self, name, {row[0]: row[1] for row in connection.execute(query)})
            self.latent_types = set(connection.scalars(sql.select(latents.c.latent_type).distinct()))
            kind = sql.case((attributes.c.type < NULL, attributes.c.type))
            query = sql.select(attributes.c.name, sql.func.min(kind), sql.func.max(kind)).group_by(attributes.c.name)
            self.attribute_types = {name: type_of(least, most) for name, least, most in connection.execute(query)}

    @contextlib.contextmanager
    def _asking(self):
        """A connection on which no statement takes longer than SECONDS; a longer one raises sqlalchemy's OperationalError."""
        with self.engine.connect() as connection:
            if not self._is_sqlite:
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {SECONDS * 1000}")
                yield connection
                return
            raw, end = connection.connection.driver_connection, time.monotonic() + SECONDS
            raw.set_progress_handler(lambda: time.monotonic() > end, STEPS)
            try:
                yield connection
            finally:
                raw.set_progress_handler(None, 0)

    def page(self, conditions, size, columns):
        """The first `size` images by id that meet `conditions`, as dicts of `columns` (names), decoded."""
        query = sql.select(*(images.c[name] for name in columns)).where(*conditions).order_by(images.c.id).limit(size)
        with self._asking() as connection:
            rows = connection.execute(query, execution_options=UNLIKE).mappings().all()
        return [
            {name: json.loads(value) if name in STRUCTURED else value for name, value in row.items()} for row in rows
        ]

    def count(self, conditions):
        query = sql.select(sql.func.count()).select_from(images).where(*conditions)
        with self._asking() as connection:
            return connection.scalar(query, execution_options=UNLIKE)

    def _file(self, reference):
        """Where the file with this reference is, as `places` has it, and its stamp if that matters; None if none is listed."""
        with self._asking() as connection:
            row = connection.execute(FILE, {"digest": _digest(reference)}).first()
        return row and (os.fsdecode(unquote_to_bytes(row.place)), row.stamp and int(row.stamp))


UNLIKE = {"compiled_cache": None}  # statements of requests are large, and no two are alike: keeping them fills the memory
FILE = sql.select(files.c.place, files.c.stamp).where(files.c.digest == sql.bindparam("digest")).limit(1)


def _prepare(connection, is_known):
    """Makes the tables, anew if they are of another version, and returns the secret; a new one if others may know the old."""
    meta.create(connection, checkfirst=True)
    known = {row.name: row.value for row in connection.execute(sql.select(meta))}
    if known.get("version") != str(VERSION):
        metadata.drop_all(connection)
        known = {}
    metadata.create_all(connection)
    if not known or is_known:
        known = {"version": str(VERSION), "secret": secrets.token_hex(32)}
        connection.execute(sql.delete(meta))
        connection.execute(sql.insert(meta), [{"name": name, "value": value} for name, value in known.items()])
    return known["secret"]


def _digest(reference):
    return hashlib.sha256(reference.encode("ascii")).hexdigest()


def _write(connection, obsolete, pending):
    """Deletes and inserts, and empties both."""
    for ids in _batches(obsolete):
        for column in (images.c.id, *(child.c.image_id for child in CHILDREN)):
            connection.execute(sql.delete(column.table).where(column.in_(ids)))
    children = {child: [] for child in CHILDREN}
    for identity, record in pending.items():
        of_image = {"image_id": identity}
        children[tags] += [{**of_image, "tag": tag} for tag in record["tags"]]
        children[datasets] += [{**of_image, "dataset": dataset} for dataset in record["datasets"]]
        children[latents] += [{**of_image, "latent_type": latent["latent_type"]} for latent in record["latents"]]
        for name, value in record["attributes"].items():
            children[attributes] += [{**of_image, "name": name, **row} for row in attribute_rows(value)]
        for part in record.pop("files"):
            place, stamp = quote(os.fsencode(part.place)), None if part.member is None else str(part.stamp)
            children[files].append({**of_image, "digest": _digest(part.reference), "place": place, "stamp": stamp})
    if pending:
        records = [{**record, **{name: json.dumps(record[name]) for name in STRUCTURED}} for record in pending.values()]
        connection.execute(sql.insert(images), records)
    for child, found in children.items():
        for some in _batches(found):
            connection.execute(sql.insert(child), some)
    obsolete.clear()
    pending.clear()


def _batches(items):
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
