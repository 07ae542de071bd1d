"""The lists of tags and of datasets, read-only: pages of all that images have, as the hosted service shows them."""

import base64
import binascii
import re
import uuid

from datago.server.forms import Invalid

PAGE, PAGE_MAX = 100, 2000


def tag(name, count):
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"tag:{name}")
    return {"id": str(identity), "name": name, "description": "", "image_count": count}


def dataset(slug_version, count):
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


def tags(store):
    """All tags, the most frequent first."""
    return [tag(name, count) for name, count in sorted(store.tags.items(), key=lambda item: (-item[1], item[0]))]


def datasets(store):
    """All datasets, the newest version of each first."""
    found = [dataset(name, count) for name, count in store.datasets.items()]
    return sorted(found, key=lambda one: (one["slug"], -one["version"]))


def page(items, params, link):
    """A page of `items`. `link` makes a url of a cursor, None if this one is wrong.

    Returns:
        The JSON of the page, or None if there is no such page.
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


def _size(value):
    """As the hosted service reads it here: what is wrong counts as absent."""
    size = int(value) if re.fullmatch(r"\s*\+?[0-9]{1,1000}\s*", value) else 0
    if size > PAGE_MAX:
        raise Invalid(f"Page size should be at most {PAGE_MAX}.")
    return size or PAGE


def _cursor(start):
    return base64.b64encode(b"o=%d" % start).decode()


def _start(cursor):
    try:
        match = re.fullmatch(rb"o=([0-9]{1,9})", base64.b64decode(cursor, validate=True)) if cursor else None
    except (binascii.Error, ValueError):
        return None
    return int(match[1]) if match else None if cursor else 0
