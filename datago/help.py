"""The keys of a config as text, for `help`."""

import textwrap
from collections.abc import Iterator
from typing import TypeVar

from datago import sources
from datago.keys import keys_of
from datago.settings import Settings

C = TypeVar("C", bound=type)


def with_keys(client: C) -> C:
    """Lets the docstring of a class go on with the keys of a config. They are looked up when it is read, as sources load theirs late."""
    client.__doc__ = _Doc(client.__doc__ or "")  # type: ignore[assignment]
    return client


class _Doc:
    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: type) -> str:
        return f"{self._text.rstrip()}\n\n{textwrap.indent(keys_text(), '    ')}"


def keys_text() -> str:
    """Every key with what it means and its default, section by section, in lines of 100 characters at most."""
    sections = [*_sections("config", "", Settings)]
    for name in sources.registered():
        sections += _sections(f"source_config, where source_type is {name!r}", "source_config", sources.source_type(name).settings)
    return "\n\n".join(sections)


def _sections(title: str, place: str, settings: type) -> Iterator[str]:
    keys = keys_of(settings)
    entries = [f"{name}: {key.doc} ({'required' if key.required else f'default: {key.default_text}'})" for name, key in keys.items()]
    lines = [textwrap.fill(entry, 96, initial_indent="    ", subsequent_indent="        ") for entry in entries]
    yield "\n".join([f"Keys of {title}:", *lines])
    for name, key in keys.items():
        if key.inside is not None:
            inside = f"{place}.{name}".lstrip(".")
            yield from _sections(inside, inside, key.inside)
