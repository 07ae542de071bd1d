"""Listings of a storage bucket in the JSON format of Google Cloud Storage, which other servers offer too."""

import re
from typing import Any

from datago.errors import SourceValueError
from datago.net.json_text import parse_json
from datago.net.stream import read_whole
from datago.net.url import Url, redact
from datago.sources.webdataset.braces import MAX_SHARDS

MAX_PAGE_BYTES = 64 << 20
MAX_PAGES = 10_000  # A page usually has a thousand objects.
MAX_TOKEN_LENGTH = 16 << 10  # A page token is sent in a request line, whose length servers limit.


def is_listing(url: str) -> bool:
    """Whether an http url without braces names a listing of objects rather than one object.

    A url names a listing if its path ends in `/o`, if its path contains `/storage/v1/b/` without an object after `/o/`, or if it
    begins with https://storage.googleapis.com/ and its last component has no suffix.
    """
    path, _, query = url.partition("#")[0].partition("?")
    if "alt=media" in query:
        return False
    _, found, rest = path.partition("/storage/v1/b/")
    if found:
        return "/o/" not in rest.rstrip("/")
    return path.endswith("/o") or path.startswith("https://storage.googleapis.com/") and "." not in path.rpartition("/")[2]


def list_objects(url: str, token: str, **options: Any) -> list[str]:
    """The urls (`mediaLink`) of all objects of a listing, from all its pages; `options` are those of open_stream.

    Raises:
        RemoteError: a page cannot be read.
        SourceValueError: a page is no listing, or names an object on another host, to which the token must not be sent.
    """
    found: list[str] = []
    page_token: str | None = None
    seen: set[str] = set()
    while True:
        page = _page(_with_page(url, page_token), token, options)
        for item in page.get("items", []):
            name = item.get("name")
            if not (isinstance(name, str) and name.endswith("/")):  # A name that ends in a slash stands for a folder.
                found.append(_link(item, url, token))
        page_token = page.get("nextPageToken")
        if not page_token:
            return found
        if not isinstance(page_token, str) or len(page_token) > MAX_TOKEN_LENGTH or not page_token.isascii():
            raise SourceValueError(f"{redact(url)}: invalid nextPageToken")
        if page_token in seen:
            raise SourceValueError(f"{redact(url)}: repeated nextPageToken")
        if len(found) > MAX_SHARDS or len(seen) >= MAX_PAGES:
            raise SourceValueError(f"{redact(url)}: the listing is too long: {len(found)} objects on {len(seen) + 1} pages so far")
        seen.add(page_token)


def _page(url: str, token: str, options: dict[str, Any]) -> dict[str, Any]:
    data = read_whole(url, MAX_PAGE_BYTES, token=token, **options)
    try:
        page = parse_json(data)
    except ValueError:
        page = None
    items = page.get("items", []) if isinstance(page, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        kind = f"begins with {data[:20]!r}" if page is None else "JSON of another kind"
        raise SourceValueError(f"{redact(url)}: not a listing of objects ({kind})")
    found: dict[str, Any] = page
    return found


def _with_page(url: str, page_token: str | None) -> str:
    if page_token is None:
        return url
    from urllib.parse import quote

    path, _, query = url.partition("#")[0].partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("pageToken=")]
    return f"{path}?{'&'.join([*kept, 'pageToken=' + quote(page_token, safe='')])}"


def _link(item: dict[str, Any], url: str, token: str) -> str:
    link = item.get("mediaLink")
    if not isinstance(link, str) or not re.match("https?://", link):
        raise SourceValueError(f"{redact(url)}: an object of the listing has no mediaLink")
    here, there = Url.parse(url), Url.parse(link)
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    google = all(end.scheme == "https" and end.host.endswith(".googleapis.com") for end in (here, there))
    if token and not same and not google:
        raise SourceValueError(f"{redact(url)}: lists objects at {there.place}, where auth_token will not be sent")
    return link
