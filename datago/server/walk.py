"""Lists the images of a folder, each with its sidecar files. The members of tar shards count as files.

`datago.cli.serve` describes which file belongs to which image. Only shards are opened here, to read their headers.
"""

import hashlib
import os
import stat
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote, urlencode

from datago.errors import printable
from datago.server.places import open_place, place_of
from datago.sources.names import IMAGES, LITTER_NAMES


class Report:
    """Counts the files that were left out or are invalid, by reason, and keeps the first path for each reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def add(self, reason: str, path: str) -> None:
        self.counts[reason] += 1
        self.first.setdefault(reason, printable(path))

    def lines(self) -> list[str]:
        return [f"{reason}: {count} (first: {self.first[reason]})" for reason, count in sorted(self.counts.items())]


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or a member of a shard.

    Attributes:
        name: base name.
        path: of the file or shard, relative to the root; undecodable bytes are surrogates.
        place: the place of that path (see `places`): the path itself, unless it is a symlink.
        stamp: when the file or shard was last changed, in ns.
        member: its name in the shard; None for a file.
        offset, size: of its bytes in the file or shard.
    """

    name: str
    path: str
    place: str
    stamp: int
    member: str | None
    offset: int
    size: int

    @property
    def suffix(self) -> str:
        return self.name.rpartition(".")[2].lower()

    @property
    def reference(self) -> str:
        """The path and query of its url, without signature. It stays the same for an unchanged file."""
        path = quote(os.fsencode(self.path))
        if self.member is None:
            return path
        return f"{path}?{urlencode({'name': os.fsencode(self.name), 'offset': self.offset, 'size': self.size})}"

    def read(self, root: str, most: int | None = None) -> bytes:
        """Its bytes, or the first `most` of them. Raises OSError."""
        with open(open_place(root, self.place)[0], "rb") as file:
            file.seek(self.offset)
            return file.read(self.size if most is None else min(most, self.size))


@dataclass(frozen=True, slots=True)
class Entry:
    """An image and its sidecar files.

    Attributes:
        key: the path relative to the root, without suffix; a shard's name without suffix counts as a folder.
        image: the image's file.
        sidecars: the sidecar files by field ("json", "mask.png").
    """

    key: str
    image: Part
    sidecars: dict[str, Part]

    def fingerprint(self, source: str) -> str:
        """A hash that changes when a file is added, removed or changed, or when `source`, the default source of images, changes."""
        parts = [("", self.image), *sorted(self.sidecars.items())]
        files = [(field, part.path, part.place, part.stamp, part.offset, part.size) for field, part in parts]
        text = repr([source, self.key, files])
        return hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def walk(root: str, report: Report, follow_links: bool = False) -> Iterator[Entry]:
    """Yields the Entry of each image below the folder `root`, in an unspecified order.

    Litter is left out by the same names as in the sources of datago: see `datago/sources/names.py`.

    Args:
        report: counts what is left out.
        follow_links: whether symlinks to files outside the folder, or to hidden files, are followed; otherwise they are left out.

    Raises:
        OSError: `root` cannot be listed. A folder below it that cannot be listed is counted in `report`.
    """

    def fail(error: OSError) -> None:
        if error.filename == root:
            raise error
        report.add(f"folder cannot be listed: {error.strerror}", error.filename)

    for folder, folders, names in os.walk(root, onerror=fail):
        place = os.path.relpath(folder, root)
        place = "" if place == "." else f"{place}/"
        for name in list(folders):
            if reason := _left_out(name) or (os.path.islink(os.path.join(folder, name)) and "link to a folder"):
                report.add(reason, os.path.join(folder, name))
                folders.remove(name)
        parts = [part for name in sorted(names) if (part := _file(root, place + name, report, follow_links))]
        for shard in [part for part in parts if part.suffix == "tar"]:
            yield from _shard(root, shard, report)
        yield from _group(place, [part for part in parts if part.suffix != "tar"], report)


def _left_out(name: str) -> str | None:
    """Why a file, a folder or a part of a member's path is left out for its name; None: it is not."""
    return "hidden" if name.startswith(".") else "litter" if name in LITTER_NAMES else None


def _file(root: str, path: str, report: Report, follow_links: bool) -> Part | None:
    name, place = path.rpartition("/")[2], path
    if reason := _left_out(name):
        report.add(reason, path)
        return None
    try:
        if os.path.islink(os.path.join(root, path)):
            place = place_of(root, path)
            if not follow_links and os.path.isabs(place):
                report.add("link out of the folder (see --follow-links)", path)
                return None
            if not follow_links and any(piece.startswith(".") for piece in place.split("/")):
                report.add("link to a hidden file (see --follow-links)", path)
                return None
        state = os.lstat(os.path.join(root, place))
    except OSError as error:
        report.add(f"file cannot be read: {error.strerror}", path)
        return None
    if not stat.S_ISREG(state.st_mode):
        report.add("not a file", path)
        return None
    return Part(name, path, place, state.st_mtime_ns, None, 0, state.st_size)


def _shard(root: str, shard: Part, report: Report) -> Iterator[Entry]:
    """Entries of a tar file. Its members are grouped by folder, as files on disk are."""
    folders: defaultdict[str, dict[str, Part]] = defaultdict(dict)
    try:
        with (
            open(open_place(root, shard.place)[0], "rb") as file,
            tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as archive,
        ):
            for member in archive:
                pieces = [piece for piece in member.name.split("/") if piece not in ("", ".")]
                if not pieces or not member.isreg() or member.issparse():
                    continue
                if reason := next(filter(None, map(_left_out, pieces)), None):
                    report.add(reason, f"{shard.path}/{member.name}")
                elif not 0 <= member.size <= shard.size - member.offset_data:
                    report.add("shard is cut short", shard.path)
                else:
                    place = "".join(f"{piece}/" for piece in [shard.path[: -len(".tar")], *pieces[:-1]])
                    where = (member.name, member.offset_data, member.size)
                    part = Part(pieces[-1], shard.path, shard.place, shard.stamp, *where)
                    folders[place][part.name] = part
                archive.members.clear()  # type: ignore[attr-defined]  # otherwise tarfile keeps all members in memory
    except Exception as error:  # for a broken file tarfile also raises RecursionError, OverflowError and others
        report.add(f"shard cannot be read: {error}", shard.path)
    for place, parts in folders.items():
        yield from _group(place, list(parts.values()), report)


def _group(place: str, parts: list[Part], report: Report) -> Iterator[Entry]:
    """Entries of one folder's files. A file belongs to the image with the shortest name that its own name begins with."""
    stems = {part.name.rpartition(".")[0] for part in parts if part.suffix in IMAGES and "." in part.name}
    owned: defaultdict[str, dict[str, Part]] = defaultdict(dict)
    for part in parts:
        beginnings = accumulate(part.name.split(".")[:-1], "{}.{}".format)
        owner = next((stem for stem in beginnings if stem in stems), None)
        if owner is None:
            report.add("belongs to no image", part.path if part.member is None else f"{part.path}/{part.member}")
        else:
            owned[owner][part.name[len(owner) + 1 :]] = part
    for stem, fields in owned.items():
        images = {field: part for field, part in fields.items() if field.lower() in IMAGES}
        sidecars = {field: part for field, part in fields.items() if field not in images}
        for field, image in images.items():
            # a.jpg and a.png in the same folder are two images, which share the sidecar files
            yield Entry(f"{place}{stem}" if len(images) == 1 else f"{place}{stem}.{field}", image, sidecars)
