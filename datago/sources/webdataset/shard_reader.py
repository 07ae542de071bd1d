"""Reads one shard, from a stream of blocks to samples: decompress → tar members → groups by key → Entries."""

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

MAX_OTHER_BYTES = 64 << 20  # A member that is neither image nor text is skipped if it is larger.
MAX_SAMPLE_BYTES = 2 << 30  # All members of a sample together may have this many bytes, or twice max_file_bytes if that is more.
MAX_MEMBERS = 4096  # of a sample
MAX_NAME_BYTES = 4096  # the length of a member's name, as PATH_MAX limits a path
ALIASES = {"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tif": "tiff"}
TEXTS = frozenset(("json", "txt", "cls"))


def split_name(name: str) -> tuple[str | None, str]:
    """(key, field) of a member: the key is the folder and the base name up to its first dot, the field is the rest in lower case.

    Returns (None, reason) for a member that belongs to no sample: a file that archivers and file managers leave behind, or a name
    without a suffix.
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
    """Groups the members of one shard into samples. Consecutive members with the same key are one sample.

    Args:
        name: the shard's name in samples and failures.
        reference: the suffix of the main image, in any case; "jpg" means any suffix of JPEG.
        masks: words that mark a mask, in any case: an image is a mask if its field (`seg.png` of `a.seg.png`) contains one of them.
        max_bytes: the size limit of a member; a larger image is a failure, another larger member is skipped.
    """

    def __init__(self, name: str, reference: str, masks: Iterable[str], max_bytes: int = 1 << 30) -> None:
        self.name = name
        self.skipped: dict[str, int] = {}
        self.damaged = False
        reference, self._max_bytes = reference.lower().removeprefix("."), max_bytes
        self._reference = ALIASES.get(reference, reference)
        self._masks = [f".{mask.lower().strip('.')}." for mask in masks]
        self._headers: deque[tuple[str, str, bool]] = deque()  # (key, field, wanted) of headers seen, whose member is not assigned yet
        self._header_key: str | None = None  # the key of the last header
        self._count = self._size = 0  # members and bytes so far of the sample with that key
        self._key: str | None = None  # the key of the sample that is being gathered
        self._members: dict[str, Member | None] = {}  # field -> Member of that sample; None if the member is too large to read
        self._fields: tuple[str, ...] = ()  # the fields of the sample before that
        self._seen: set[str] = set()  # the keys of all samples of the shard; a repeated key is an error
        self._done: list[Entry | Failure] = []

    def read(self, blocks: Any) -> Generator[list[Entry | Failure], None, None]:
        """Yields lists of Entries and Failures, at most one list for each block and one at the end.

        Args:
            blocks: an iterator of bytes. If it is a Stream of datago.net.stream, unwanted members are skipped without being read, and
                a stream that ends before the archive does is resumed.
        """
        reader, fault = TarReader(select=self._select), None
        try:
            block, blocks = decompressed(blocks)
            skip = getattr(blocks, "skip", None)
            while not reader.ended:
                if block:
                    self._assign_members(iter(reader.feed(block)))
                if self._done:
                    yield self._take()
                if skip and reader.skippable:
                    reader.skip(skip(reader.skippable))
                block = next(blocks, None)
                if block is None:
                    if reader.ended or getattr(blocks, "checked", True):
                        break
                    blocks.resume("it ended before the archive did")  # The stream goes on, or raises if the object has no more bytes.
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
            self._done.append(Failure(self.name, "shard", str(fault) or "out of memory"))
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
        """Whether the data of a member is wanted. TarReader calls this at each member's header."""
        if len(name) > MAX_NAME_BYTES:
            raise ShardError(f"a name of {len(name)} bytes, {name[:40]!r}…")
        key, field = split_name(os.fsdecode(name))
        if key is None:
            self._skip(field)
            return False
        suffix = field.rpartition(".")[2]
        if key != self._header_key:
            self._header_key, self._count, self._size = key, 0, 0
        wanted = size <= (self._max_bytes if suffix in IMAGES or suffix in TEXTS else min(self._max_bytes, MAX_OTHER_BYTES))
        self._count += 1
        self._size += size if wanted else 0
        if self._count > MAX_MEMBERS or self._size > max(MAX_SAMPLE_BYTES, 2 * self._max_bytes):
            raise ShardError(f"a sample of {self._count} members, {self._size} bytes: {key[:40]!r}")
        self._headers.append((key, field, wanted))
        return wanted

    def _assign_members(self, members: Iterator[Member]) -> None:
        """Assigns members whose data has come to the headers that were seen, and finishes samples. A sample is complete as soon as
        the header of the next sample is seen, even if the data of that header's member has not come yet."""
        while self._headers:
            key, field, wanted = self._headers[0]
            if key != self._key:
                self._finish_sample(whole=True)
                self._key = key
            member = next(members, None) if wanted else None
            if wanted and member is None:
                return
            self._headers.popleft()
            self._skip("repeated member", field in self._members)  # As when tar extracts, the last one counts.
            self._members[field] = member

    # ---- samples ----

    def _finish_sample(self, whole: bool) -> None:
        """Finishes the sample that is being gathered. `whole` is false at the end of a damaged shard, where the sample may lack members:
        it is kept only if it has the same fields as the sample before it and no header waits for its data."""
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
            self._done.append(Failure(name, "too_large", f"{large[0]}: larger than max_file_bytes, which is {self._max_bytes}"))
            return
        self._skip("large member", len(large))
        images, attributes, others = self._sort(members)
        if images:
            self._done.append(Entry(key, self.name, images, attributes=json.dumps(attributes) if attributes else "{}", latents=others))
        else:
            self._skip("no image")

    def _sort(self, members: dict[str, Member | None]) -> "tuple[list[tuple[str, str | None, Member]], dict[str, str], dict[str, Buffer]]":
        """(images, attributes, other members) of a sample, as Entry takes them."""
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
        if main is None:  # Without a reference image the first additional image becomes the main image.
            first = next((i for i, (role, _, _) in enumerate(images) if role == "additional"), None)
            if first is not None:
                main = ("image", None, images.pop(first)[2])
        return ([main] if main else []) + images, attributes, others
