"""One shard, from a stream of blocks to samples: decompress → tar members → groups by key → Entries."""

import json
import os
import zlib
from collections import deque
from importlib.util import find_spec
from itertools import chain

from datago._folder import IMAGES
from datago._sample import Entry, Failure
from datago._tar import TarError, TarReader
from datago.sources.tree import LITTER as FOLDERS

BLOCK = 1 << 20            # bytes that a decompressor makes at once
OTHER_MOST = 64 << 20      # bytes of a member that is neither image nor text; larger ones are passed over
ALIASES = {"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tif": "tiff"}
TEXTS = frozenset(("json", "txt", "cls"))


class ShardError(Exception):
    """A shard that cannot be read to its end; the text says why."""


def decompressed(blocks):
    """The blocks of a tar, whatever it was packed with: the content decides, not the name. Plain blocks stay what they are."""
    first = next(blocks, b"")
    while len(first) < 4 and (more := next(blocks, None)) is not None:  # a slow network's first bytes come one by one
        first = bytes(first) + bytes(more)
    if bytes(first[:2]) == b"\x1f\x8b":
        return b"", _ungzip(chain([first], blocks))
    if bytes(first[:4]) == b"\x28\xb5\x2f\xfd":
        if find_spec("zstandard") is None:
            raise ShardError("zstd-compressed: install the package zstandard to read it")
        return b"", _unzstd(chain([first], blocks))
    return first, blocks


class _Readable:
    """Blocks as a file that zstandard can read from."""

    def __init__(self, blocks):
        self._blocks, self._rest = blocks, memoryview(b"")

    def read(self, size):
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._rest = memoryview(block)
        out, self._rest = self._rest[:size], self._rest[size:]
        return bytes(out)


def _unzstd(blocks):
    """Any number of frames. A stream that ends early just ends; the archive in it then lacks its end."""
    import zstandard

    reader, begun = zstandard.ZstdDecompressor().stream_reader(_Readable(blocks), read_across_frames=True), False
    try:
        while block := reader.read(BLOCK):
            begun = True
            yield block
        if not begun:
            raise ShardError("the zstd stream ends early")
    except zstandard.ZstdError as fault:
        raise ShardError(f"damaged zstd stream: {fault}") from None


def _ungzip(blocks):
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


LITTER = {"Thumbs.db", "__meta__"}.union(map(os.fsdecode, FOLDERS))


def split_name(name):
    """(key, field) of a member: folder + base name up to its first dot, and the rest in lower case.

    (None, reason) for what belongs to no sample: litter of archivers and file managers, names without a suffix.
    """
    name = name.removeprefix("./")
    folder, slash, base = name.rpartition("/")
    if base.startswith(".") or not LITTER.isdisjoint(name.split("/")):
        return None, "litter"
    stem, _, field = base.partition(".")
    if not field.rpartition(".")[2]:
        return None, "no suffix"
    return folder + slash + stem, field.lower()


class ShardReader:
    """Groups the members of one shard into samples: those that follow each other under one key.

    Args:
        name: what the shard is called in samples and failures.
        reference: the suffix of the main image, in any case; "jpg" is any JPEG.
        masks: an image with one of these among the parts of its field (`a.seg.png`) is a mask; likewise.
        most: bytes of a member; larger images are failures, other members are passed over.
    """

    def __init__(self, name, reference, masks, most=1 << 30):
        self.name = name
        self.skipped = {}
        self.damaged = False
        reference, self._most = reference.lower().removeprefix("."), most
        self._reference = ALIASES.get(reference, reference)
        self._masks = [f".{mask.lower().strip('.')}." for mask in masks]
        self._headers = deque()  # (key, field, whether its data is to come), seen but not yet dealt with
        self._key = None         # of the sample that is being gathered
        self._members = {}       # its field -> Member; None: too large to read
        self._fields = ()        # those of the sample before
        self._seen = set()       # keys of the shard: one that comes back is an error
        self._done = []          # Entries and Failures

    def read(self, blocks):
        """Yields lists of Entries and Failures, at most one for a block and one at the end.

        Args:
            blocks: an iterator of bytes. A remote.Stream passes over members that nobody wants, and is told of an end that was none.
        """
        reader, fault = TarReader(select=self._select), None
        try:
            block, blocks = decompressed(blocks)
            skip = getattr(blocks, "skip", None)
            while not reader.ended:
                if block:
                    self._deal(iter(reader.feed(block)))
                if self._done:
                    yield self._take()
                if skip and reader.skippable:
                    reader.skip(skip(reader.skippable))
                block = next(blocks, None)
                if block is None:
                    if reader.ended or getattr(blocks, "checked", True):
                        break
                    blocks.resume("it ended before the archive did")  # goes on, or says that this is all there is
        except (TarError, ShardError, OSError) as error:
            fault = error
        try:
            if fault is None:
                reader.close()
        except TarError as error:
            fault = error
        self._finish_sample(whole=fault is None)
        if fault is not None:
            self.damaged = True
            self._done.append(Failure(self.name, "shard", str(fault)))
        if reader.trailing:
            self._skip("bytes after the end of an archive")
        for kind, count in reader.skipped.items():
            if kind not in ("unselected", "directory"):
                self._skip(kind, count)
        if self._done:
            yield self._take()

    def _take(self):
        done, self._done = self._done, []
        return done

    def _skip(self, reason, count=1):
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def _select(self, name, size):
        """Called at each member's header: is its data wanted?"""
        key, field = split_name(os.fsdecode(name))
        if key is None:
            self._skip(field)
            return False
        suffix = field.rpartition(".")[2]
        wanted = size <= (self._most if suffix in IMAGES or suffix in TEXTS else min(self._most, OTHER_MOST))
        self._headers.append((key, field, wanted))
        return wanted

    def _deal(self, members):
        """Goes through the headers that were seen, with the members whose data is there. A sample is complete when the header of
        another one is seen, be the data of that still to come."""
        while self._headers:
            key, field, wanted = self._headers[0]
            if key != self._key:
                self._finish_sample(whole=True)
                self._key = key
            member = next(members, None) if wanted else None
            if wanted and member is None:
                return
            self._headers.popleft()
            self._skip("repeated member", field in self._members)  # as for tar, the last one counts
            self._members[field] = member

    # ---- samples ----

    def _finish_sample(self, whole):
        """The sample that was gathered goes out. At the end of a damaged shard nobody knows whether it is complete: it is taken for
        that if it has what the one before it had, and nothing of it is still to come."""
        key, members = self._key, self._members
        self._key, self._members = None, {}
        if key is None or not members:
            return
        if not whole and (self._headers or set(members) != set(self._fields)):
            self._skip("cut off with its shard")
            return
        self._fields = tuple(members)
        name = f"{self.name}:{key}"
        if key in self._seen:
            self._done.append(Failure(name, "sample", f"members of one sample are not together; came back with {', '.join(members)}"))
            return
        self._seen.add(key)
        large = [field for field, member in members.items() if member is None]
        if any(field.rpartition(".")[2] in IMAGES for field in large):
            self._done.append(Failure(name, "too_large", f"{large[0]}: larger than max_file_bytes, which is {self._most}"))
            return
        self._skip("large member", len(large))
        images, attributes, others = self._sort(members)
        if images:
            self._done.append(Entry(key, self.name, images, attributes=json.dumps(attributes) if attributes else "{}", latents=others))
        else:
            self._skip("no image")

    def _sort(self, members):
        """(images of an Entry, attributes, other bytes) of a sample's members."""
        main, images, attributes, others, masks = None, [], {}, {}, set()
        for field, member in members.items():
            parts = field.split(".")
            suffix = parts[-1]
            if member is None:
                continue
            if suffix in IMAGES:
                if any(mask in f".{field}." for mask in self._masks):
                    stem = ".".join(parts[:-1])
                    name = stem if stem and stem not in masks else field
                    masks.add(name)
                    images.append(("mask", name, member))
                elif main is None and self._reference in (field, ALIASES.get(field, field)):
                    main = ("image", None, member)
                else:
                    images.append(("additional", os.fsdecode(member.name), member))
            elif suffix in TEXTS:
                attributes[field] = bytes(member).decode("utf-8", "surrogateescape")
            else:
                others[field] = bytes(member)
        if main is None:  # without the reference image the first other one takes its place
            first = next((i for i, (role, _, _) in enumerate(images) if role == "additional"), None)
            if first is not None:
                main = ("image", None, images.pop(first)[2])
        return ([main] if main else []) + images, attributes, others
