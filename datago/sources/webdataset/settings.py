"""The keys of a webdataset source_config."""

import os
from dataclasses import dataclass

from datago.checks import BOOL, PATH, SECONDS, TEXT, TEXTS, URLS, integer
from datago.keys import key
from datago.sources.settings import SourceSettings


@dataclass(frozen=True, kw_only=True)
class WebDatasetSettings(SourceSettings):
    url: str | os.PathLike[str] | tuple[str, ...] = key(
        URLS, doc="A path, glob or url of tar shards, with braces (`{000000..000146}`, `{a,b}`), or a list of them."
    )
    reference_image_type: str = key(
        TEXT, "jpg",
        'The suffix of the main image (`"left.jpg"`: `a.left.jpg`), in any case; without it the first image of a sample is taken.',
    )  # fmt: skip
    mask_suffixes: tuple[str, ...] = key(TEXTS, ("mask", "seg"), "`a.seg.png` is the mask `seg` of sample `a`; in any case.")
    random_sampling: bool = key(BOOL, None, "Shards come in another order in every epoch.", "true with a `seed`")
    shuffle: bool | None = key(BOOL, None, "The same by another name.")
    shuffle_buffer: int = key(integer(0, 2**24), 0, "Samples in the shuffle buffer; each needs memory for the bytes of its files.")
    concurrent_downloads: int = key(integer(0, 1024), 0, "Shards read at once; 0: two from disk, eight over a network.")
    auth_token: str = key(TEXT, "", "Sent as `Authorization: Bearer`, to the urls' own host only.")
    timeout: float = key(SECONDS, 30.0, "Seconds without a byte after which a connection is given up; the whole has no limit.")
    shard_index: str | os.PathLike[str] | None = key(
        PATH, None,
        "Path or url of a JSON file that says how many samples each shard has: what `widsindex` writes, or "
        '`{"000000.tar": 1000, …}`.',
    )  # fmt: skip
    cache_dir: str | os.PathLike[str] | None = key(PATH, None, "A folder in which shards are kept on local disk.")
    cache_size: int = key(integer(1), 2**37, "The size limit of cache_dir in bytes.")
