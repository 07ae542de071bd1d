"""The tables of the index: one row an image with all that a page shows, and beside it what filters look into and which files there are.

Text is compared byte by byte (SQLite's default, PostgreSQL's collation "C"), so that ids sort as the protocol has it.
Structured values are JSON in text columns: every database takes them, and pages hand them on.
"""

import sqlalchemy as sql
from sqlalchemy import Column, Float, Integer, Table, Text

metadata = sql.MetaData()
Word = Text().with_variant(Text(collation="C"), "postgresql")


def _table(name, *columns):
    return Table(f"datago_{name}", metadata, *columns)


def _of_image(name, key, *columns):
    image = Column("image_id", Word, primary_key=True)
    return _table(name, image, Column(key, Word, primary_key=True), *columns)


meta = _table("meta", Column("name", Word, primary_key=True), Column("value", Text, nullable=False))
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
    Column("aspect_ratio", Float(53)),
    Column("aspect_ratio_fraction", Word),
    Column("duplicate_state", Integer),
    Column("date", Word, nullable=False),
    Column("coca_embedding", Text),
    Column("tags", Text),
    Column("datasets", Text),
    Column("attributes", Text),
    Column("latents", Text),
)
STRUCTURED = ("coca_embedding", "tags", "datasets", "attributes", "latents")
tags = _of_image("tags", "tag")
datasets = _of_image("datasets", "dataset")
latents = _of_image("latents", "latent_type")
# One row an attribute, or an element of a list: see `attributes.attribute_rows`.
attributes = _of_image(
    "attributes",
    "name",
    Column("element", Integer, primary_key=True),
    Column("type", Integer, nullable=False),
    Column("whole", sql.BigInteger),
    Column("number", Float(53)),
    Column("text", Word),
    Column("words", Word),
)
# What may be handed out: see `walk.Part`. Paths may be longer than what databases take into an index, digests never are.
files = _of_image("files", "digest", Column("place", Word, nullable=False), Column("stamp", Text))
sql.Index("datago_files_by_digest", files.c.digest)
CHILDREN = (tags, datasets, latents, attributes, files)
