"""The database: one row an image with all that a page shows, and three tables beside it that filters look into.

Text is compared byte by byte (SQLite's default, PostgreSQL's collation "C"), so that ids sort as the protocol has it.
Structured values are JSON in text columns: every database takes them, and pages hand them on.
"""

import json
import re

import sqlalchemy as sql
from sqlalchemy import Column, Float, Integer, Table, Text

BATCH = 500  # rows written, or deleted, in one statement: below every database's limit on parameters

metadata = sql.MetaData()
Word = Text().with_variant(Text(collation="C"), "postgresql")


def _table(name, *columns):
    return Table(f"datago_{name}", metadata, *columns)


def _of_image(name, key, *columns):
    image = Column("image_id", Word, primary_key=True)
    return _table(name, image, Column(key, Word, primary_key=True), *columns)


images = _table(
    "images",
    Column("id", Word, primary_key=True),
    Column("location", Word, nullable=False),  # path and query of its url
    Column("fingerprint", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("draw", Word, nullable=False),  # hexadecimal digits that images/random/ draws by
    Column("source", Word, nullable=False),
    Column("width", Integer),
    Column("height", Integer),
    Column("short_edge", Integer),
    Column("pixel_count", sql.BigInteger),
    Column("aspect_ratio", Float),
    Column("aspect_ratio_fraction", Word),
    Column("duplicate_state", Integer),
    Column("date", Word, nullable=False),
    Column("coca_embedding", Text),
    Column("tags", Text),
    Column("attributes", Text),
    Column("latents", Text),
)
STRUCTURED = ("coca_embedding", "tags", "attributes", "latents")
tags = _of_image("tags", "tag")
latents = _of_image("latents", "latent_type")
# One row an attribute, or an element of a list. Type is that of TYPES; words is the text as match comparators want it.
attributes = _of_image(
    "attributes",
    "name",
    Column("element", Integer, primary_key=True),
    Column("type", Integer, nullable=False),
    Column("number", Float),
    Column("text", Word),
    Column("words", Word),
)
CHILDREN = (tags, latents, attributes)
TYPES = ("boolean", "long", "double", "text")


class Store:
    """The index of one folder.

    Args:
        url: sqlite:///path, postgresql://…; "" and sqlite:// are SQLite in memory.

    Attributes:
        tags, latent_types: the names in use, as sets.
        attribute_types: name to one of TYPES.
    """

    def __init__(self, url):
        url = sql.make_url(re.sub("^postgres(ql)?://", "postgresql+psycopg://", url or "sqlite://"))
        options = {}
        if url.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": 60}  # for another server's index to be made
        in_memory = url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")
        if in_memory:
            # A memory that connections of all threads share; it is there as long as one of them is.
            url = sql.make_url("sqlite:///file:datago?mode=memory&cache=shared&uri=true")
            options = {"poolclass": sql.QueuePool, "connect_args": {"check_same_thread": False}}
        self.engine = sql.create_engine(url, **options)
        self._keeper = self.engine.connect() if in_memory else None
        metadata.create_all(self.engine)

    def close(self):
        if self._keeper:
            self._keeper.close()
        self.engine.dispose()

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
            self.tags = set(connection.scalars(sql.select(tags.c.tag).distinct()))
            self.latent_types = set(connection.scalars(sql.select(latents.c.latent_type).distinct()))
            column = attributes.c
            query = sql.select(column.name, sql.func.min(column.type), sql.func.max(column.type)).group_by(column.name)
            # numbers that are not all whole are doubles; other mixtures are text
            self.attribute_types = {
                name: TYPES[most if least == most or (least, most) == (1, 2) else 3]
                for name, least, most in connection.execute(query)
            }

    def page(self, conditions, size, columns):
        """The first `size` images by id that meet `conditions`, as dicts of `columns` (names), decoded."""
        query = sql.select(*(images.c[name] for name in columns)).where(*conditions).order_by(images.c.id).limit(size)
        with self.engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            {name: json.loads(value) if name in STRUCTURED else value for name, value in row.items()} for row in rows
        ]

    def count(self, conditions):
        with self.engine.connect() as connection:
            return connection.scalar(sql.select(sql.func.count()).select_from(images).where(*conditions))


def _write(connection, obsolete, pending):
    """Deletes and inserts, and empties both."""
    for ids in _batches(obsolete):
        for column in (images.c.id, *(child.c.image_id for child in CHILDREN)):
            connection.execute(sql.delete(column.table).where(column.in_(ids)))
    children = {child: [] for child in CHILDREN}
    for identity, record in pending.items():
        children[tags] += [{"image_id": identity, "tag": tag} for tag in record["tags"]]
        children[latents] += [
            {"image_id": identity, "latent_type": latent["latent_type"]} for latent in record["latents"]
        ]
        for name, value in record["attributes"].items():
            children[attributes] += [{"image_id": identity, "name": name, **row} for row in _attribute_rows(value)]
    if pending:
        rows = [{**record, **{name: json.dumps(record[name]) for name in STRUCTURED}} for record in pending.values()]
        connection.execute(sql.insert(images), rows)
    for child, rows in children.items():
        for some in _batches(rows):
            connection.execute(sql.insert(child), some)
    obsolete.clear()
    pending.clear()


def _batches(items):
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def _attribute_rows(value):
    """One row for a value, one for each element of a list; none for null, which counts as absent."""
    for element, item in enumerate(value if isinstance(value, list) else [value]):
        if item is None:
            continue
        kinds = (bool, int, float)
        kind = next((number for number, kind in enumerate(kinds) if isinstance(item, kind)), len(kinds))
        text = item if isinstance(item, str) else json.dumps(item)
        number = float(item) if kind < len(kinds) and abs(item) < 1e300 else None
        yield {"element": element, "type": kind, "number": number, "text": text, "words": words(text)}


def words(text):
    """`text` in lower case, its words with one space before and after each."""
    return " ".join(["", *re.findall(r"\w+", text.lower()), ""])
