"""Writes what is made of the declared keys: the tables of docs/config.md and docs/sources/, and datago/config.schema.json.

    tools/config_docs.py [--check]        --check: only says what is not as it should be, with the exit status 1

A page has its tables between two comments: <!-- keys MODULE.CLASS --> or <!-- skips SOURCE_TYPE -->, and <!-- end -->.
"""

import json
import pathlib
import re
import sys
from importlib import import_module
from inspect import get_annotations

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from datago.keys import keys_of  # noqa: E402
from datago.schema import config_schema  # noqa: E402
from datago.sources import source_type  # noqa: E402

PAGES = [ROOT / "docs" / "config.md", *sorted((ROOT / "docs" / "sources").glob("*.md"))]
SCHEMA = ROOT / "datago" / "config.schema.json"
PLACE = re.compile(r"(<!-- (keys|skips) ([\w.]+) -->\n).*?(<!-- end -->)", re.S)


def default_of(key):
    quoted = not key.shown and isinstance(key.default, str | tuple)
    return f"`{key.default_text}`" if quoted else key.default_text


def table(head, rows):
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def keys(name):
    """The keys that a class declares itself, not those that it has from others."""
    module, _, name = name.rpartition(".")
    found = getattr(import_module(module), name)
    own = [(name, key) for name, key in keys_of(found).items() if name in get_annotations(found)]
    return table(("key", "default", ""), [(f"`{name}`", default_of(key), key.doc) for name, key in own])


def skips(name):
    return table(("reason", "what was passed over"), [(f"`{reason}`", text) for reason, text in source_type(name).skips.items()])


def page(text):
    """A page with its tables as they should be."""
    return PLACE.sub(lambda found: found[1] + {"keys": keys, "skips": skips}[found[2]](found[3]) + found[4], text)


def wanted():
    """file -> what should be in it."""
    schema = json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"
    return {SCHEMA: schema, **{path: page(path.read_text("utf-8")) for path in PAGES}}


def main():
    files = wanted()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is not what the declared keys say: run tools/config_docs.py")
        else:
            path.write_text(files[path], "utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
