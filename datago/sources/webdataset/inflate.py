"""Decompresses shards: gzip or zstd, with any number of members or frames, or not compressed at all."""

import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain
from typing import Any

BLOCK = 1 << 20  # bytes that a decompressor returns at a time, at most
MAX_INFLATED_BYTES, MAX_INFLATION = 1 << 30, 200  # A shard may inflate to this many bytes plus this many times its compressed size.
ZSTD, SKIPPABLE = b"\x28\xb5\x2f\xfd", range(0x184D2A50, 0x184D2A60)  # magic numbers of zstd frames and of skippable frames (RFC 8878)


class ShardError(Exception):
    """A shard cannot be read to its end; the text says why."""


def decompressed(blocks: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """(first block, other blocks) of the uncompressed tar. The content decides whether it is decompressed, not the shard's name.
    Blocks of a plain tar are passed through unchanged."""
    first = next(blocks, b"")
    while len(first) < 4 and (more := next(blocks, None)) is not None:  # A slow network may deliver the first bytes one by one.
        first = bytes(first) + bytes(more)
    if bytes(first[:2]) == b"\x1f\x8b":
        return b"", _bounded(_ungzip, chain([first], blocks))
    if bytes(first[:4]) == ZSTD or int.from_bytes(first[:4], "little") in SKIPPABLE:
        if find_spec("zstandard") is None:
            raise ShardError("zstd-compressed: install the package zstandard to read it")
        return b"", _bounded(_unzstd, chain([first], blocks))
    return first, blocks


def _bounded(decompress: Callable[[Iterator[Any]], Iterator[bytes]], blocks: Iterator[Any]) -> Iterator[bytes]:
    """The output of `decompress`. Raises ShardError if it grows out of proportion to the input, as that of a decompression bomb."""
    taken = given = 0

    def counted() -> Iterator[Any]:
        nonlocal taken
        for block in blocks:
            taken += len(block)
            yield block

    for block in decompress(counted()):
        given += len(block)
        if given > MAX_INFLATED_BYTES + MAX_INFLATION * taken:
            raise ShardError(f"decompression bomb: its first {taken} bytes inflate to more than {given - len(block)}")
        yield block


class _BlockFile:
    """A file-like view of an iterator of blocks, which zstandard can read from."""

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
    """Decompresses any number of frames, skippable ones too. A truncated stream raises nothing here as long as it gave some bytes:
    the tar reader reports that the archive in it lacks its end."""
    import zstandard

    source: Any = _BlockFile(blocks)  # It has only the one method of a file that zstandard calls.
    reader, started = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True), False
    try:
        while block := reader.read(BLOCK):
            started = True
            yield block
        if not started:
            raise ShardError("the zstd stream ends early")
    except zstandard.ZstdError as fault:
        raise ShardError(f"damaged zstd stream: {fault}") from None


def _ungzip(blocks: Iterator[Any]) -> Iterator[bytes]:
    """Decompresses any number of concatenated gzip members; zeros may follow the last one."""
    inflater, started = zlib.decompressobj(31), False
    for block in blocks:
        data = bytes(block)
        while data:
            if not started and not data.strip(b"\0"):
                break  # padding
            started = True
            try:
                out = inflater.decompress(data, BLOCK)
            except zlib.error as fault:
                raise ShardError(f"damaged gzip stream: {fault}") from None
            if out:
                yield out
            if inflater.eof:
                data, inflater, started = inflater.unused_data, zlib.decompressobj(31), False
            else:
                data = inflater.unconsumed_tail
    if started:
        raise ShardError("the gzip stream ends early")
