"""The read-only lists of tags and datasets, in pages, in the form that the hosted service has."""

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from datago.server.forms import Invalid

if TYPE_CHECKING:
    from datago.server.store import Store

PAGE, PAGE_MAX = 100, 2000


def tag(name: str, count: int) -> dict[str, Any]:
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"tag:{name}")
    return {"id": str(identity), "name": name, "description": "", "image_count": count}


def dataset(slug_version: str, count: int) -> dict[str, Any]:
    slug, _, version = slug_version.partition("/")
    return {
        "slug_version": slug_version,
        "slug": slug,
        "version": int(version),
        "name": slug,
        "author": None,
        "image_count": count,
        "description": "",
        "is_frozen": True,
    }


def tags(store: "Store") -> list[dict[str, Any]]:
    """All tags, the most frequent first."""
    return [tag(name, count) for name, count in sorted(store.tags.items(), key=lambda item: (-item[1], item[0]))]


def datasets(store: "Store") -> list[dict[str, Any]]:
    """All datasets, the newest version of each first."""
    found = [dataset(name, count) for name, count in store.datasets.items()]
    return sorted(found, key=lambda one: (one["slug"], -one["version"]))


def page(items: list[dict[str, Any]], params: Mapping[str, str], link: Callable[[str], str]) -> dict[str, Any] | None:
    """A page of `items`. `link` returns the url of the page with a given cursor.

    Returns:
        The JSON of the page, or None if the cursor in `params` is invalid.
    """
    size = _size(params.get("page_size", ""))
    start = _start(params.get("cursor", ""))
    if start is None:
        return None
    return {
        "next": link(_cursor(start + size)) if start + size < len(items) else None,
        "previous": link(_cursor(max(0, start - size))) if start else None,
        "results": items[start : start + size],
    }


def _size(value: str) -> int:
    """The page size. The hosted service treats an invalid one as absent, so this server does too."""
    size = int(value) if re.fullmatch(r"\s*\+?[0-9]{1,1000}\s*", value) else 0
    if size > PAGE_MAX:
        raise Invalid(f"Page size should be at most {PAGE_MAX}.")
    return size or PAGE


def _cursor(start: int) -> str:
    return base64.b64encode(b"o=%d" % start).decode()


def _start(cursor: str) -> int | None:
    try:
        match = re.fullmatch(rb"o=([0-9]{1,9})", base64.b64decode(cursor, validate=True)) if cursor else None
    except (binascii.Error, ValueError):
        return None
    return int(match[1]) if match else None if cursor else 0
