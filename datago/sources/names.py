"""The names that mark files, folders and archive members as images, or as litter that does not belong to a data set."""

import os

from datago.sources._folder import IMAGES

__all__ = ["IMAGES", "LITTER", "LITTER_NAMES", "TEXT_NAMES"]

# The suffix of a text that stands beside an image under the image's name: what the attribute is called.
TEXT_NAMES = {"txt": "caption"}

# Folders that archivers, file systems and storage boxes leave behind. They contain thumbnails, copies and deleted files.
LITTER = frozenset((b"__MACOSX", b"@eaDir", b"@Recycle", b"#recycle", b"$RECYCLE.BIN", b"System Volume Information", b"lost+found"))
# An archive member with one of these names in its path is litter. Names that begin with a dot are litter too, and are checked elsewhere.
LITTER_NAMES = frozenset(("Thumbs.db", "__meta__")).union(map(os.fsdecode, LITTER))
