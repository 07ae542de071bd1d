"""A folder's images, each with the files that belong to it; the members of tar shards count as files.

Which file belongs to which image is told in `datago.cli.serve`. Nothing is opened here but shards, for their headers.
"""

import hashlib
import os
import stat
import tarfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote, urlencode

from datago._folder import IMAGES
from datago.errors import printable
from datago.server.places import open_place, place_of


class Report:
    """What was passed over or is wrong: how often, and where first."""

    def __init__(self):
        self.counts, self.first = Counter(), {}

    def add(self, reason, path):
        self.counts[reason] += 1
        self.first.setdefault(reason, printable(path))

    def lines(self):
        return [f"{reason}: {count} (first: {self.first[reason]})" for reason, count in sorted(self.counts.items())]


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or a member of a shard.

    Attributes:
        name: base name.
        path: of the file or shard, below the root; undecodable bytes are surrogates.
        place: where that is, as `places` has it: the path, unless it is a link.
        stamp: when that was changed, in ns.
        member: its name in the shard; None for a file.
        offset, size: where its bytes are.
    """

    name: str
    path: str
    place: str
    stamp: int
    member: str | None
    offset: int
    size: int

    @property
    def suffix(self):
        return self.name.rpartition(".")[2].lower()

    @property
    def reference(self):
        """The path and query of its url, without signature. It never changes for an unchanged file."""
        path = quote(os.fsencode(self.path))
        if self.member is None:
            return path
        return f"{path}?{urlencode({'name': os.fsencode(self.name), 'offset': self.offset, 'size': self.size})}"

    def read(self, root, most=None):
        """Its bytes, or the first `most` of them."""
        with open(open_place(root, self.place)[0], "rb") as file:
            file.seek(self.offset)
            return file.read(self.size if most is None else min(most, self.size))


@dataclass(frozen=True, slots=True)
class Entry:
    """An image and what belongs to it.

    Attributes:
        key: the path below the root, without suffix; a shard's name, without suffix, counts as a folder.
        image: its Part.
        sidecars: field ("json", "mask.png") to Part.
    """

    key: str
    image: Part
    sidecars: dict[str, Part]

    def fingerprint(self, source):
        """Changes when one of the files does, or one comes or goes, or the `source` of images that name none changes."""
        parts = [("", self.image), *sorted(self.sidecars.items())]
        files = [(field, part.path, part.place, part.stamp, part.offset, part.size) for field, part in parts]
        text = repr([source, self.key, files])
        return hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def walk(root, report, follow_links=False):
    """Yields the Entry of each image below the folder `root`, in no promised order.

    Args:
        report: a Report.
        follow_links: a link to a file outside the folder, or to what is hidden in it, is that file; else it is passed over.

    Raises:
        OSError: `root` cannot be listed. What cannot be read further down is counted in `report`.
    """

    def fail(error):
        if error.filename == root:
            raise error
        report.add(f"folder cannot be listed: {error.strerror}", error.filename)

    for folder, folders, names in os.walk(root, onerror=fail):
        place = os.path.relpath(folder, root)
        place = "" if place == "." else f"{place}/"
        for name in [name for name in folders if name.startswith(".") or os.path.islink(os.path.join(folder, name))]:
            report.add("hidden" if name.startswith(".") else "link to a folder", os.path.join(folder, name))
            folders.remove(name)
        parts = [part for name in sorted(names) if (part := _file(root, place + name, report, follow_links))]
        for shard in [part for part in parts if part.suffix == "tar"]:
            yield from _shard(root, shard, report)
        yield from _group(place, [part for part in parts if part.suffix != "tar"], report)


def _file(root, path, report, follow_links):
    name, place = path.rpartition("/")[2], path
    if name.startswith("."):
        report.add("hidden", path)
        return None
    try:
        if os.path.islink(os.path.join(root, path)):
            place = place_of(root, path)
            if not follow_links and os.path.isabs(place):
                report.add("link out of the folder (see --follow-links)", path)
                return None
            if not follow_links and any(piece.startswith(".") for piece in place.split("/")):
                report.add("link to what is hidden (see --follow-links)", path)
                return None
        state = os.lstat(os.path.join(root, place))
    except OSError as error:
        report.add(f"file cannot be read: {error.strerror}", path)
        return None
    if not stat.S_ISREG(state.st_mode):
        report.add("not a file", path)
        return None
    return Part(name, path, place, state.st_mtime_ns, None, 0, state.st_size)


def _shard(root, shard, report):
    """Entries of a tar file. Names below a folder belong together there as on disk."""
    folders = defaultdict(dict)
    try:
        with (
            open(open_place(root, shard.place)[0], "rb") as file,
            tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as archive,
        ):
            for member in archive:
                pieces = [piece for piece in member.name.split("/") if piece not in ("", ".")]
                if not pieces or not member.isreg() or member.issparse():
                    continue
                if any(piece.startswith(".") or piece in ("__MACOSX", "__meta__") for piece in pieces):
                    report.add("hidden", f"{shard.path}/{member.name}")
                elif not 0 <= member.size <= shard.size - member.offset_data:
                    report.add("shard is cut short", shard.path)
                else:
                    place = "".join(f"{piece}/" for piece in [shard.path[: -len(".tar")], *pieces[:-1]])
                    where = (member.name, member.offset_data, member.size)
                    part = Part(pieces[-1], shard.path, shard.place, shard.stamp, *where)
                    folders[place][part.name] = part
                archive.members.clear()  # else it keeps them all
    except Exception as error:  # tarfile raises much over a broken file: RecursionError, OverflowError
        report.add(f"shard cannot be read: {error}", shard.path)
    for place, parts in folders.items():
        yield from _group(place, list(parts.values()), report)


def _group(place, parts, report):
    """Entries of one folder's files: each goes to the image with the shortest name that its own begins with."""
    stems = {part.name.rpartition(".")[0] for part in parts if part.suffix in IMAGES and "." in part.name}
    owned = defaultdict(dict)
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
            # a.jpg and a.png side by side are two images, which share what else there is
            yield Entry(f"{place}{stem}" if len(images) == 1 else f"{place}{stem}.{field}", image, sidecars)
