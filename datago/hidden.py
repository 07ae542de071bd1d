"""Strings of a config that are used as they are and shown otherwise: in reprs, and so in errors and logs."""

from datago.sources.addresses import redact, scheme_of

SECRETS = {"api_key", "auth_token"}
ADDRESSES = {"url", "api_url"}


class Secret(str):
    """A string that no repr shows."""

    __slots__ = ()

    def __repr__(self):
        return "'…'" if self else "''"


class Address(str):
    """A url or path, whose repr has no user name, password, query or fragment."""

    __slots__ = ()

    def __repr__(self):
        return repr(redact(self)) if scheme_of(self) else str.__repr__(self)


def hidden(key, value):
    """The value of a config's key, with the repr that suits it."""
    if key in SECRETS:
        return Secret(value) if isinstance(value, str) else Secret("…")
    if key in ADDRESSES and isinstance(value, list | tuple):
        return [hidden(key, one) for one in value]
    return Address(value) if key in ADDRESSES and isinstance(value, str) else value
