"""What a Stream and the cache read from: the bytes of one object, over as many attempts as it takes."""

from typing import Protocol


class ByteSource(Protocol):
    """One object. HttpObject, FsspecObject and FileObject are such sources, and CachedObject is one over another."""

    @property
    def position(self) -> int:
        """Bytes read so far."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole; None while it is unknown."""

    @property
    def checked(self) -> bool:
        """Whether the end of the object can be told from a connection that broke."""

    def open(self) -> None:
        """Begins an attempt that reads on from `position`. Raises TransferError."""

    def readinto(self, view: memoryview, patience: float | None = None) -> int:
        """Fills the front of `view` and returns the number of bytes, 0 at the end.

        Raises:
            TransferError: this attempt failed.
            ReadIdle: no data for `patience` seconds; sources that cannot tell never raise it.
        """

    def disconnect(self) -> None:
        """Ends the attempt; `open` may follow."""

    def close(self) -> None:
        """Ends the attempt for good."""


class SourceReader:
    """A reader of a ByteSource, which knows the size and the certainty of the end that the source knows."""

    _source: ByteSource

    @property
    def size(self) -> int | None:
        return self._source.size

    @property
    def checked(self) -> bool:
        return self._source.checked
