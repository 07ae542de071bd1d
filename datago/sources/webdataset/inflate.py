"""What a shard was packed with: gzip or zstd, in any number of pieces, or nothing."""

import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain
from typing import Any

BLOCK = 1 << 20  # bytes that a decompressor makes at once
INFLATED_FREE, INFLATED_MOST = 1 << 30, 200  # a shard may inflate to so many bytes, and to so many times its size
ZSTD, SKIPPABLE = b"\x28\xb5\x2f\xfd", range(0x184D2A50, 0x184D2A60)  # how zstd's frames begin, and those to be skipped (RFC 8878)


class ShardError(Exception):
    """A shard that cannot be read to its end; the text says why."""


def decompressed(blocks: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """The blocks of a tar, whatever it was packed with: the content decides, not the name. Plain blocks stay what they are."""
    first = next(blocks, b"")
    while len(first) < 4 and (more := next(blocks, None)) is not None:  # a slow network's first bytes come one by one
        first = bytes(first) + bytes(more)
    if bytes(first[:2]) == b"\x1f\x8b":
        return b"", _bounded(_ungzip, chain([first], blocks))
    if bytes(first[:4]) == ZSTD or int.from_bytes(first[:4], "little") in SKIPPABLE:
        if find_spec("zstandard") is None:
            raise ShardError("zstd-compressed: install the package zstandard to read it")
        return b"", _bounded(_unzstd, chain([first], blocks))
    return first, blocks


def _bounded(decompress: Callable[[Iterator[Any]], Iterator[bytes]], blocks: Iterator[Any]) -> Iterator[bytes]:
    """What `decompress` makes of the blocks, as long as that is no bomb."""
    taken = given = 0

    def counted() -> Iterator[Any]:
        nonlocal taken
        for block in blocks:
            taken += len(block)
            yield block

    for block in decompress(counted()):
        given += len(block)
        if given > INFLATED_FREE + INFLATED_MOST * taken:
            raise ShardError(f"a bomb: its first {taken} bytes inflate to more than {given - len(block)}")
        yield block


class _Readable:
    """Blocks as a file that zstandard can read from."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._rest = memoryview(block)
        out, self._rest = self._rest[:size], self._rest[size:]
        return bytes(out)


def _unzstd(blocks: Iterator[Any]) -> Iterator[bytes]:
    """Any number of frames, also those to be skipped. A stream that ends early just ends; the archive in it then lacks its end."""
    import zstandard

    source: Any = _Readable(blocks)  # of a file it has what is called

    reader, begun = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True), False
    try:
        while block := reader.read(BLOCK):
            begun = True
            yield block
        if not begun:
            raise ShardError("the zstd stream ends early")
    except zstandard.ZstdError as fault:
        raise ShardError(f"damaged zstd stream: {fault}") from None


def _ungzip(blocks: Iterator[Any]) -> Iterator[bytes]:
    """Any number of gzip members one after the other; zeros may follow the last one."""
    inflater, begun = zlib.decompressobj(31), False
    for block in blocks:
        data = bytes(block)
        while data:
            if not begun and not data.strip(b"\0"):
                break  # padding
            begun = True
            try:
                out = inflater.decompress(data, BLOCK)
            except zlib.error as fault:
                raise ShardError(f"damaged gzip stream: {fault}") from None
            if out:
                yield out
            if inflater.eof:
                data, inflater, begun = inflater.unused_data, zlib.decompressobj(31), False
            else:
                data = inflater.unconsumed_tail
    if begun:
        raise ShardError("the gzip stream ends early")
