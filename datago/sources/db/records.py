"""One record of a page: checks what the server says of a sample, and holds the sample during its downloads."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urljoin

from datago.engine._sample import Entry, Failure
from datago.errors import printable
from datago.sources.attributes import attributes_text

MAX_NAME = 4096  # characters of an id, a source, the type of a latent; the protocol's ids have 512


class BadRecord(ValueError):
    """A record is invalid, so that no sample can be made of it; the text says why."""


class Record:
    """A sample that waits for its downloads.

    Attributes:
        parts: a list of (role, name, url) of all downloads, with the roles of an Entry and "latent".
        missing: how many of the downloads have not ended yet.
        position: the position that the Entry or Failure will have.
    """

    __slots__ = ("id", "source", "fields", "parts", "bodies", "missing", "failure", "position")

    def __init__(self, record: Any, page_url: str, require_images: bool) -> None:
        """Raises BadRecord."""
        self.id, self.source = identity(record), _name(record, "source")
        self.fields: dict[str, Any] = {
            "attributes": _attributes(record),
            "duplicate_state": _duplicate_state(record),
            "tags": [str(tag) for tag in _typed(record, "tags", list) or ()],
            "coca_embedding": _embedding(record),
        }
        self.parts = list(_parts(record, page_url))
        if require_images and not (self.parts and self.parts[0][0] == "image"):
            raise BadRecord("image_direct_url: missing, and require_images is set")
        self.bodies: list[Any] = [None] * len(self.parts)
        self.missing = len(self.parts)
        self.failure: tuple[str, str] | None = None
        self.position = -1

    def put(self, index: int, body: Any, error: tuple[str, str] | None) -> bool:
        """Records that download `index` has ended, with `body` or with `error`: (reason, text). Returns True if it was the last one."""
        role, name, _ = self.parts[index]
        self.bodies[index] = body
        self.missing -= 1
        if error is not None and self.failure is None:
            self.failure = error[0], error[1] if role == "image" else f"{role} {printable(name)}: {error[1]}"
        return self.missing == 0

    def finish(self) -> Entry | Failure:
        """The Entry, or a Failure if a download has failed, since incomplete samples are not delivered."""
        found = self._entry() if self.failure is None else Failure(f"{self.source}:{self.id}", *self.failure)
        found.position = self.position
        return found

    def _entry(self) -> Entry:
        parts = [(role, name, body) for (role, name, _), body in zip(self.parts, self.bodies, strict=True)]
        images = [(role, None if role == "image" else name, body) for role, name, body in parts if role != "latent"]
        latents = {name: body for role, name, body in parts if role == "latent"}
        return Entry(self.id, self.source, images, latents=latents, **self.fields)


def identity(record: Any) -> str:
    """The record's id as text. Raises BadRecord."""
    if not isinstance(record, dict):
        raise BadRecord(f"not an object but {type(record).__name__}")
    found = _name(record, "id")
    if not found:
        raise BadRecord("id: missing")
    return found


def _name(record: dict[str, Any], key: str) -> str:
    """A string or number as a string; "" if it is null or missing. Raises BadRecord for other types, and for strings that UTF-8 cannot
    encode, because errors could not name them."""
    value = record.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRecord(f"{key}: got {type(value).__name__}, wanted a string")
    text = str(value)
    if len(text) > MAX_NAME:
        raise BadRecord(f"{key}: longer than {MAX_NAME} characters")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadRecord(f"{key}: unpaired surrogate") from None
    return text


def _typed(record: dict[str, Any], key: str, kind: type) -> Any:
    """The value of `key`, which must be of type `kind`, or None if it is null or missing."""
    value = record.get(key)
    if value is not None and not isinstance(value, kind):
        raise BadRecord(f"{key}: got {type(value).__name__}, wanted {kind.__name__} or null")
    return value


def _attributes(record: dict[str, Any]) -> str:
    """Their JSON text."""
    try:
        return attributes_text(_typed(record, "attributes", dict) or {})
    except BadRecord:
        raise
    except ValueError as error:
        raise BadRecord(str(error)) from None


def _duplicate_state(record: dict[str, Any]) -> int:
    state = _typed(record, "duplicate_state", int)
    if state is not None and not -(2**31) <= state < 2**31:
        raise BadRecord("duplicate_state: out of range")
    return -1 if state is None else int(state)


def _embedding(record: dict[str, Any]) -> list[float]:
    vector = _typed(_typed(record, "coca_embedding", dict) or {}, "vector", list) or ()
    try:
        return [float(number) for number in vector]
    except (TypeError, ValueError, OverflowError):
        raise BadRecord("coca_embedding: vector is not a list of numbers") from None


def _parts(record: dict[str, Any], page_url: str) -> Iterator[tuple[str, str, str]]:
    """Yields (role, name, url) of everything to download, the main image first, since its size decides the bucket of the other images."""
    url = _typed(record, "image_direct_url", str)
    if url:
        yield "image", "image", _absolute(url, page_url)
    for latent in _typed(record, "latents", list) or ():
        if not isinstance(latent, dict):
            raise BadRecord("latents: not objects")
        name, url, is_mask = (latent.get(key) for key in ("latent_type", "file_direct_url", "is_mask"))
        if not isinstance(name, str) or not isinstance(is_mask, bool) or not isinstance(url, str) or not url:
            raise BadRecord(f"latents: {name!r:.80} lacks one of latent_type, file_direct_url and is_mask")
        _name(latent, "latent_type")
        # is_mask is checked first, because a mask may have "image" in its name.
        role = "mask" if is_mask else "additional" if "image" in name and "latent_" not in name else "latent"
        yield role, name, _absolute(url, page_url)


def _absolute(url: str, page_url: str) -> str:
    if not url.startswith(("https://", "http://")):
        try:
            url = urljoin(page_url, url)
        except ValueError:
            raise BadRecord("invalid url") from None
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe="%/:?&=#+~!$,;'@()*[]", errors="replace")
