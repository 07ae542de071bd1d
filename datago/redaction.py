"""Strings of a config whose repr, and so every error and log record with it, does not show secrets."""

import reprlib
from typing import Any

from datago.net.url import bare, redact, scheme_of

SECRETS = {"api_key", "auth_token"}
ADDRESSES = {"url", "api_url"}


class Secret(str):
    """A string whose repr does not show its value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'" if self else "''"


class Address(str):
    """A url or path whose repr leaves out the user name, password, query and fragment."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(bare(self))


def hidden(key: str, value: Any) -> Any:
    """The value of a config's key, as a Secret or an Address if the key needs one."""
    if key in SECRETS:
        return Secret(value) if isinstance(value, str) else Secret("…")
    if key in ADDRESSES and isinstance(value, list | tuple):
        return [hidden(key, one) for one in value]
    return Address(value) if key in ADDRESSES and isinstance(value, str) else value


def shown(key: str, value: Any) -> str:
    """The value of a config's key as a short text for an error. The content of nested objects is left out, as their keys may be secret."""
    return _short.repr(hidden(key, value))


class _Short(reprlib.Repr):
    def repr_str(self, text: str, level: int) -> str:
        return super().repr_str(redact(text) if scheme_of(text) else text, level)  # It may be a url under the wrong key.


_short = _Short()
_short.maxdict, _short.maxlist, _short.maxtuple, _short.maxstring, _short.maxlong, _short.maxother = 0, 8, 8, 200, 60, 300
