"""Strings of a config that are used as they are and shown otherwise: in reprs, and so in errors and logs."""

import reprlib
from typing import Any

from datago.net.url import bare, redact, scheme_of

SECRETS = {"api_key", "auth_token"}
ADDRESSES = {"url", "api_url"}


class Secret(str):
    """A string that no repr shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'" if self else "''"


class Address(str):
    """A url or path, whose repr has no user name, password, query or fragment."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(bare(self))


def hidden(key: str, value: Any) -> Any:
    """The value of a config's key, with the repr that suits it."""
    if key in SECRETS:
        return Secret(value) if isinstance(value, str) else Secret("…")
    if key in ADDRESSES and isinstance(value, list | tuple):
        return [hidden(key, one) for one in value]
    return Address(value) if key in ADDRESSES and isinstance(value, str) else value


def shown(key: str, value: Any) -> str:
    """The same as text for an error: short, and what stands in an object inside it is not shown at all, since it has keys of its own."""
    return _short.repr(hidden(key, value))


class _Short(reprlib.Repr):
    def repr_str(self, text: str, level: int) -> str:
        return super().repr_str(redact(text) if scheme_of(text) else text, level)  # a url under the wrong key


_short = _Short()
_short.maxdict, _short.maxlist, _short.maxtuple, _short.maxstring, _short.maxlong, _short.maxother = 0, 8, 8, 200, 60, 300
