"""The keys of a file source_config."""

import os
from dataclasses import dataclass

from datago.checks import BOOL, PATH
from datago.keys import key
from datago.sources.settings import SourceSettings


@dataclass(frozen=True, kw_only=True)
class FileSettings(SourceSettings):
    root_path: str | os.PathLike[str] = key(PATH, doc="A folder, read with all its subfolders, or one file.")
    random_sampling: bool = key(BOOL, None, "Shuffled: the whole tree is listed first.", "true with a `seed`")
    captions: bool = key(
        BOOL, True, "What stands beside pictures becomes their attributes: `a.txt` and `a.json`, `metadata.jsonl` and `metadata.csv`."
    )
