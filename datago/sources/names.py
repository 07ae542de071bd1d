"""Which names, of files, folders and members of archives, are those of images, and which are litter that no collection is made of."""

from datago.sources._folder import IMAGES

__all__ = ["IMAGES", "LITTER"]

LITTER = frozenset((b"__MACOSX", b"@eaDir", b"@Recycle", b"#recycle", b"$RECYCLE.BIN", b"System Volume Information", b"lost+found"))
