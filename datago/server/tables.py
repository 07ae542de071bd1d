"""The tables of the index. `images` has one row per image with everything that a page returns. The other tables have what filters search,
and the files that may be served.

Text is compared byte by byte (SQLite's default, PostgreSQL's collation "C"), so that ids sort in the order that the protocol requires.
Structured values are stored as JSON in text columns, because every database has these and pages return them unchanged.
"""

from typing import Any

import sqlalchemy as sql
from sqlalchemy import Column, Float, Integer, Table, Text

metadata = sql.MetaData()
Word = Text().with_variant(Text(collation="C"), "postgresql")


def _table(name: str, *columns: Column[Any]) -> Table:
    return Table(f"datago_{name}", metadata, *columns)


def _of_image(name: str, key: str, *columns: Column[Any]) -> Table:
    image: Column[str] = Column("image_id", Word, primary_key=True)
    return _table(name, image, Column(key, Word, primary_key=True), *columns)


meta = _table("meta", Column("name", Word, primary_key=True), Column("value", Text, nullable=False))
images = _table(
    "images",
    Column("id", Word, primary_key=True),
    Column("location", Word, nullable=False),  # path and query of the image's url
    Column("fingerprint", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("draw", Word, nullable=False),  # hexadecimal digits whose prefix images/random/ selects by
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
# One row per attribute, or per element of an attribute that is a list: see `attributes.attribute_rows`.
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
# The files that may be served: see `walk.Part`. They are looked up by digest, because paths may be too long for a database's index.
files = _of_image("files", "digest", Column("place", Word, nullable=False), Column("stamp", Text))
sql.Index("datago_files_by_digest", files.c.digest)
CHILDREN = (tags, datasets, latents, attributes, files)
