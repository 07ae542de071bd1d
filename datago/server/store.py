"""The database of the index: writes `tables` from a folder's entries, and answers queries."""

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote_to_bytes

import sqlalchemy as sql

from datago.server.attributes import NULL, Clause, attribute_rows, type_of
from datago.server.index import VERSION
from datago.server.tables import CHILDREN, STRUCTURED, attributes, datasets, files, images, latents, meta, metadata, tags
from datago.server.walk import Entry, Report

BATCH = 500  # rows that one statement writes or deletes; below every database's limit on parameters
THREADS = 40  # threads that query at once; starlette runs requests in as many
SECONDS = 55  # the most that a query may take; the hosted service's searches have the same limit
KEPT = 2**16  # cached look-ups of files, because a training loop downloads each file again and again
STEPS = 2**16  # instructions of SQLite's virtual machine between two checks of the time


class Store:
    """The index of one folder. Only its owner may read its files, because they contain the secret that signs urls.

    Args:
        database: its url, sqlite:///path or postgresql://…; "" and sqlite:// mean SQLite in memory.

    Attributes:
        tags, datasets: the names in use, mapped to their numbers of images.
        latent_types: the names in use.
        attribute_types: the names in use, mapped to one of `attributes.TYPES`.
        secret: the key that signs urls. It stays the same for as long as the index exists.

    Raises:
        OSError: the index belongs to another user.
    """

    tags: dict[str, int]
    datasets: dict[str, int]
    latent_types: set[str]
    attribute_types: dict[str, str]

    def __init__(self, database: str) -> None:
        url = sql.make_url(re.sub("^postgres(ql)?://", "postgresql+psycopg://", database or "sqlite://"))
        self._is_sqlite = url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"pool_size": THREADS + 1, "hide_parameters": True}
        in_memory = self._is_sqlite and url.database in (None, "", ":memory:")
        if self._is_sqlite:
            options["connect_args"] = {"timeout": 60}  # seconds to wait while another server writes the index
        if in_memory:
            # The connections of all threads share this memory, which exists as long as at least one of them is open.
            url = sql.make_url("sqlite:///file:datago?mode=memory&cache=shared&uri=true")
            options |= {"poolclass": sql.QueuePool, "connect_args": {"check_same_thread": False}}
        self.engine = sql.create_engine(url, **options)
        self._keeper = self.engine.connect() if in_memory else None
        self.file = functools.lru_cache(KEPT)(self._file)
        was_open = self._is_sqlite and self._close_to_others()
        with self.engine.begin() as connection:
            self.secret = bytes.fromhex(_prepare(connection, was_open))

    def close(self) -> None:
        if self._keeper:
            self._keeper.close()
        self.engine.dispose()

    def _close_to_others(self) -> bool:
        """Removes other users' permissions from the index's files. True: others had permissions."""
        with self.engine.connect() as connection:
            path = connection.exec_driver_sql("PRAGMA database_list").one()[2]
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

    def sync(
        self, entries: Iterable[Entry], fingerprint: Callable[[Entry], str], describe: Callable[[Entry], dict[str, Any]], report: Report
    ) -> tuple[int, int, int]:
        """Updates the index to contain exactly the images `entries`, in one transaction. Unchanged images are not described again.

        Args:
            fingerprint: a function of an entry; its record is still right while its fingerprint is the same.
            describe: a function that makes the record of an entry.
            report: counts the images that are left out.

        Returns:
            How many images were written, kept and removed. A changed image counts as removed and as written.
        """
        with self.engine.begin() as connection:
            rows = connection.execute(sql.select(images.c.location, images.c.fingerprint, images.c.id)).all()
            stale: dict[str, tuple[str | None, str]] = {row.location: (row.fingerprint, row.id) for row in rows}
            owners: dict[str, str] = {row.id: row.location for row in rows}
            before, kept = len(rows), 0
            pending: dict[str, dict[str, Any]] = {}
            obsolete: list[str] = []
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
                if holder in stale:  # the walk has not met it yet: it was removed, or it comes later
                    stale[holder] = (None, stale[holder][1])
                    obsolete.append(record["id"])
                elif holder is not None:
                    where = f"{entry.image.path}: {record['id']} is the id of {holder}"
                    report.add("image left out, because another one has its id", where)
                    continue
                owners[record["id"]] = entry.image.reference
                pending[record["id"]] = record
                if len(pending) >= BATCH:
                    _write(connection, obsolete, pending)
            gone = [identity for mark, identity in stale.values() if mark is not None]
            _write(connection, obsolete + gone, pending)
            total: int = connection.execute(sql.select(sql.func.count()).select_from(images)).scalar_one()
        self._load_names()
        return total - kept, kept, before - kept

    def _load_names(self) -> None:
        with self.engine.connect() as connection:
            for name, column in (("tags", tags.c.tag), ("datasets", datasets.c.dataset)):
                query = sql.select(column, sql.func.count()).group_by(column)
                setattr(self, name, {row[0]: row[1] for row in connection.execute(query)})
            self.latent_types = set(connection.scalars(sql.select(latents.c.latent_type).distinct()))
            kind = sql.case((attributes.c.type < NULL, attributes.c.type))
            query = sql.select(attributes.c.name, sql.func.min(kind), sql.func.max(kind)).group_by(attributes.c.name)
            self.attribute_types = {name: type_of(least, most) for name, least, most in connection.execute(query)}

    @contextlib.contextmanager
    def _asking(self) -> Iterator[sql.Connection]:
        """A connection on which a statement that takes longer than SECONDS raises sqlalchemy's OperationalError."""
        with self.engine.connect() as connection:
            if not self._is_sqlite:
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {SECONDS * 1000}")
                yield connection
                return
            raw: Any = connection.connection.driver_connection
            end = time.monotonic() + SECONDS
            raw.set_progress_handler(lambda: time.monotonic() > end, STEPS)
            try:
                yield connection
            finally:
                raw.set_progress_handler(None, 0)

    def page(self, conditions: Sequence[Clause], size: int, columns: Iterable[str]) -> list[dict[str, Any]]:
        """The first `size` images, by id, that meet `conditions`: a dict of the named `columns` each, with structured values decoded."""
        query = sql.select(*(images.c[name] for name in columns)).where(*conditions).order_by(images.c.id).limit(size)
        with self._asking() as connection:
            rows = connection.execute(query, execution_options=UNLIKE).mappings().all()
        return [{name: json.loads(value) if name in STRUCTURED else value for name, value in row.items()} for row in rows]

    def count(self, conditions: Sequence[Clause]) -> int:
        query = sql.select(sql.func.count()).select_from(images).where(*conditions)
        with self._asking() as connection:
            return connection.execute(query, execution_options=UNLIKE).scalar_one()

    def _file(self, reference: str) -> tuple[str, int | None] | None:
        """The place (see `places`) of the file with this reference, and its time of change if it is a shard; None if it is not listed."""
        with self._asking() as connection:
            row = connection.execute(FILE, {"digest": _digest(reference)}).first()
        return row and (os.fsdecode(unquote_to_bytes(row.place)), int(row.stamp) if row.stamp else None)


UNLIKE = {"compiled_cache": None}  # queries of requests are large and differ from each other, so caching them would fill the memory
T = TypeVar("T")
FILE = sql.select(files.c.place, files.c.stamp).where(files.c.digest == sql.bindparam("digest")).limit(1)


def _prepare(connection: sql.Connection, is_known: bool) -> str:
    """Makes the tables, again if they have another version, and returns the secret in hex. `is_known`: others may know the old secret, so
    a new one is made."""
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
    return str(known["secret"])


def _digest(reference: str) -> str:
    return hashlib.sha256(reference.encode("ascii")).hexdigest()


def _write(connection: sql.Connection, obsolete: list[str], pending: dict[str, dict[str, Any]]) -> None:
    """Deletes the images `obsolete` (ids), inserts `pending` (records by id), and empties both."""
    for ids in _batches(obsolete):
        for column in (images.c.id, *(child.c.image_id for child in CHILDREN)):
            connection.execute(sql.delete(column.table).where(column.in_(ids)))
    children: dict[sql.Table, list[dict[str, Any]]] = {child: [] for child in CHILDREN}
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


def _batches(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
