"""One shard, from a stream of blocks to samples: decompress → tar members → groups by key → Entries."""

import json
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from datago.engine._sample import Entry, Failure
from datago.sources.names import IMAGES, LITTER_NAMES
from datago.sources.webdataset._tar import Member, TarError, TarReader
from datago.sources.webdataset.inflate import ShardError, decompressed

if TYPE_CHECKING:
    from typing_extensions import Buffer

OTHER_MOST = 64 << 20  # bytes of a member that is neither image nor text; larger ones are passed over
SAMPLE_MOST = 2 << 30  # bytes of a sample's members, or twice max_file_bytes if that is more
MEMBERS_MOST = 4096  # of a sample
NAME_MOST = 4096  # bytes of a name, as of a path
ALIASES = {"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tif": "tiff"}
TEXTS = frozenset(("json", "txt", "cls"))


def split_name(name: str) -> tuple[str | None, str]:
    """(key, field) of a member: folder + base name up to its first dot, and the rest in lower case.

    (None, reason) for what belongs to no sample: litter of archivers and file managers, names without a suffix.
    """
    name = name.removeprefix("./")
    folder, slash, base = name.rpartition("/")
    if base.startswith(".") or not LITTER_NAMES.isdisjoint(name.split("/")):
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

    def __init__(self, name: str, reference: str, masks: Iterable[str], most: int = 1 << 30) -> None:
        self.name = name
        self.skipped: dict[str, int] = {}
        self.damaged = False
        reference, self._most = reference.lower().removeprefix("."), most
        self._reference = ALIASES.get(reference, reference)
        self._masks = [f".{mask.lower().strip('.')}." for mask in masks]
        self._headers: deque[tuple[str, str, bool]] = deque()  # (key, field, whether its data is to come), seen but not yet dealt with
        self._named: str | None = None
        self._count = self._size = 0  # the key of the last header, and what its sample has so far
        self._key: str | None = None  # of the sample that is being gathered
        self._members: dict[str, Member | None] = {}  # its field -> Member; None: too large to read
        self._fields: tuple[str, ...] = ()  # those of the sample before
        self._seen: set[str] = set()  # keys of the shard: one that comes back is an error
        self._done: list[Entry | Failure] = []  # Entries and Failures

    def read(self, blocks: Any) -> Generator[list[Entry | Failure], None, None]:
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
        except (TarError, ShardError, OSError, MemoryError) as error:
            fault = error
        try:
            if fault is None:
                reader.close()
        except TarError as error:
            fault = error
        self._finish_sample(whole=fault is None)
        if fault is not None:
            self.damaged = True
            self._done.append(Failure(self.name, "shard", str(fault) or "no memory for it"))
        if reader.trailing:
            self._skip("bytes after the end of an archive")
        for kind, count in reader.skipped.items():
            if kind not in ("unselected", "directory"):
                self._skip(kind, count)
        if self._done:
            yield self._take()

    def _take(self) -> list[Entry | Failure]:
        done, self._done = self._done, []
        return done

    def _skip(self, reason: str, count: int = 1) -> None:
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def _select(self, name: bytes, size: int) -> bool:
        """Called at each member's header: is its data wanted?"""
        if len(name) > NAME_MOST:
            raise ShardError(f"a name of {len(name)} bytes, {name[:40]!r}…")
        key, field = split_name(os.fsdecode(name))
        if key is None:
            self._skip(field)
            return False
        suffix = field.rpartition(".")[2]
        if key != self._named:
            self._named, self._count, self._size = key, 0, 0
        wanted = size <= (self._most if suffix in IMAGES or suffix in TEXTS else min(self._most, OTHER_MOST))
        self._count += 1
        self._size += size if wanted else 0
        if self._count > MEMBERS_MOST or self._size > max(SAMPLE_MOST, 2 * self._most):
            raise ShardError(f"a sample of {self._count} members, {self._size} bytes: {key[:40]!r}")
        self._headers.append((key, field, wanted))
        return wanted

    def _deal(self, members: Iterator[Member]) -> None:
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

    def _finish_sample(self, whole: bool) -> None:
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
            self._done.append(Failure(name, "sample", f"duplicate or non-contiguous sample key; fields: {', '.join(members)}"))
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

    def _sort(self, members: dict[str, Member | None]) -> "tuple[list[tuple[str, str | None, Member]], dict[str, str], dict[str, Buffer]]":
        """(images of an Entry, attributes, other bytes) of a sample's members."""
        main: tuple[str, str | None, Member] | None = None
        images: list[tuple[str, str | None, Member]] = []
        attributes: dict[str, str] = {}
        others: dict[str, Buffer] = {}
        masks: set[str] = set()
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
