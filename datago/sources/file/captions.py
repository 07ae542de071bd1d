"""What stands beside pictures becomes their attributes: `a.txt` and `a.json` beside `a.jpg`, and the rows of a folder's metadata.jsonl and
metadata.csv, as Hugging Face's imagefolder has them. docs/sources/file.md says which name what gets."""

import csv
import json
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.engine._texts import read_texts
from datago.errors import SourceValueError, printable, source_os_error
from datago.sources.attributes import attributes_text
from datago.sources.file.tree import Tree
from datago.sources.names import TEXT_NAMES
from datago.sources.planned import Group

MOST = 2**20  # bytes of a text or JSON file
THREADS = 16  # that read these: a network file system takes its time for each, and answers many at once
SWITCH = "with source_config.captions false such files are not read"

Item = tuple[bytes, int] | Entry | Failure


class Captions:
    """The attributes of the images of a Tree.

    Args:
        stopped: a function that says whether the pass has ended.
    """

    def __init__(self, tree: Tree, stopped: Callable[[], bool]) -> None:
        self._tree, self._stopped = tree, stopped
        self._rows: dict[bytes, str] = {}  # of an image, by its path below the root: JSON text
        self._looked_at = 0  # of tree.sidecars, in how many folders metadata was looked for

    def attach(self, batches: Iterator[Sequence[Item]]) -> Iterator[Sequence[Item]]:
        """The same entries in the same order: for a pair whose image has attributes an Entry, and a Failure where they cannot be read.

        Raises:
            SourceError: a metadata file cannot be read; the text names the file and the line.
        """
        for batch in batches:
            self._read_metadata()
            attached = self._attached(batch) if self._tree.sidecars else batch
            if attached is None:
                return
            yield Group(batch.number, batch.size, attached, batch.valid) if isinstance(batch, Group) else attached

    # ---- beside a picture ----

    def _attached(self, batch: Sequence[Item]) -> list[Item] | None:
        """None: the pass has ended meanwhile."""
        base, sidecars = len(self._tree.base), self._tree.sidecars
        beside: list[list[bytes]] = []  # for each entry the paths that there may be
        for entry in batch:
            path = b"" if not isinstance(entry, tuple) else entry[0]
            kinds = sidecars.get(path[base : path.rfind(b"/") + 1], ()) if path else ()
            # what comes later counts more: the texts, whose suffixes Folder names first
            beside.append([path[: path.rfind(b".")] + kind for kind in reversed(kinds) if kind.startswith(b".")])
        read = read_texts([path for paths in beside for path in paths], THREADS, MOST, self._stopped)
        if read is None:
            return None
        found = iter(read)
        return [
            entry if not isinstance(entry, tuple) else self._with_attributes(entry, paths, [*islice(found, len(paths))])
            for entry, paths in zip(batch, beside, strict=True)
        ]

    def _with_attributes(self, entry: tuple[bytes, int], paths: list[bytes], found: list[bytes | tuple[str, str] | None]) -> Item:
        path, position = entry
        text = self._rows.get(path[len(self._tree.base) :])
        name = os.fsdecode(path)
        made: Entry | Failure
        try:
            if any(data is not None for data in found):
                attributes: dict[str, Any] = json.loads(text) if text else {}
                for sidecar, data in zip(paths, found, strict=True):
                    attributes |= _parsed(os.fsdecode(os.path.basename(sidecar)), data)
                text = attributes_text(attributes)
            if text is None:
                return entry
            made = Entry(name, "filesystem", [("image", None, name)], attributes=text)
        except _Refused as error:
            made = Failure(name, error.reason, str(error))
        except (ValueError, RecursionError) as error:
            made = Failure(name, "sample", f"{error} ({SWITCH})")
        made.position = position
        return made

    # ---- of a folder ----

    def _read_metadata(self) -> None:
        """Reads the metadata of the folders that were listed since the last call. A folder comes after the one that it lies in, so that
        what is nearest to an image counts."""
        folders = self._tree.sidecars
        if len(folders) == self._looked_at:
            return
        for prefix, kinds in [*islice(folders.items(), self._looked_at, None)]:
            for kind, rows in (b"metadata.csv", _csv_rows), (b"metadata.jsonl", _json_rows):
                if kind in kinds:
                    self._read_rows(prefix, self._tree.base + prefix + kind, rows)
        self._looked_at = len(folders)

    def _read_rows(self, prefix: bytes, path: bytes, rows: "Callable[[bytes], Iterator[tuple[int, dict[str, Any]]]]") -> None:
        shown = printable(os.fsdecode(path))
        number = 0
        try:
            for number, row in rows(path):  # noqa: B007 - for the error
                if self._stopped():
                    return
                name = row.pop("file_name", None)
                if not isinstance(name, str):
                    raise ValueError(f"got {'no file_name' if name is None else repr(name)[:80]}, wanted the path of an image as file_name")
                self._rows[posixpath.normpath(prefix + os.fsencode(name))] = attributes_text(row)
        except OSError as error:
            raise source_os_error(error, "captions", os.fsdecode(path)) from None
        except (ValueError, RecursionError) as error:
            # a line that is no line of JSON or CSV at all was not yielded, and says itself which it is
            where = "" if isinstance(error, _Unreadable) else f"line {number}: "
            raise SourceValueError(f"captions: {shown}: {where}{error} ({SWITCH})") from None


class _Refused(ValueError):
    """A file beside a picture that could not be read."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class _Unreadable(ValueError):
    """A line of a metadata file, which the text names."""


def _parsed(name: str, data: bytes | tuple[str, str] | None) -> dict[str, Any]:
    """The attributes in one file beside a picture. Raises ValueError, whose text names the file."""
    if data is None:
        return {}
    shown = printable(name)
    if isinstance(data, tuple):
        reason, text = data
        text = f"more than {MOST} bytes" if reason == "too_large" else text
        raise _Refused(reason, f"{shown}: {text} ({SWITCH})")
    suffix = name.rpartition(".")[2].lower()
    try:
        text = data.decode("utf-8-sig")
        if suffix in TEXT_NAMES:
            return {TEXT_NAMES[suffix]: text.removesuffix("\n").removesuffix("\r")}
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown}: not {'UTF-8' if isinstance(error, UnicodeError) else 'JSON'}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{shown}: got a JSON {type(value).__name__}, wanted an object")
    return value


def _json_rows(path: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _Unreadable(f"line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise _Unreadable(f"line {number}: got a JSON {type(row).__name__}, wanted an object")
            yield number, row


def _csv_rows(path: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        reader = csv.reader(_decoded(file), strict=True)
        try:
            names = next(reader, [])
            for row in reader:
                if row and len(row) != len(names):
                    raise _Unreadable(f"line {reader.line_num}: got {len(row)} fields, wanted {len(names)}, as the first line has names")
                if row:
                    yield reader.line_num, dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise _Unreadable(f"line {reader.line_num}: {error}") from None


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeError as error:
            raise _Unreadable(f"line {number}: {error}") from None
