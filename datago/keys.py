"""The keys of a config. Each key is a field of a frozen dataclass; the field declares its check, default and documentation."""

import json
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from inspect import get_annotations
from typing import Any, NamedTuple

from datago.checks import REQUIRED, Check


class Key(NamedTuple):
    """
    Attributes:
        check: the Check of its values.
        default: the value if the config lacks the key or has null; REQUIRED if the key must be given.
        doc: one sentence for the docs and the JSON schema.
        shown: the default in words, for a default whose value does not explain itself.
        inside: for a value that is an object with keys of its own, the dataclass of these keys.
    """

    check: Check
    default: Any
    doc: str
    shown: str = ""
    inside: type | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str:
        """The default in words, as docs have it."""
        value = self.default
        if self.shown or self.required or value is None:
            return self.shown or ("required" if self.required else "none")
        if isinstance(value, int) and value >= 2**20 and value & (value - 1) == 0:
            return f"2^{value.bit_length() - 1}"
        return json.dumps(value)


def key(check: Check, default: Any = REQUIRED, doc: str = "", shown: str = "", inside: type | None = None) -> Any:
    """Makes the dataclass field of a key (see Key), for a class with `@dataclass(frozen=True, kw_only=True)`."""
    declared = {"key": Key(check, default, doc, shown, inside)}
    return field(metadata=declared) if default is REQUIRED else field(default=default, metadata=declared)


def keys_of(settings: type) -> Mapping[str, Key]:
    """The keys of a dataclass, in their order. Those of the root base class, which all its subclasses share, come last."""
    *derived, root = [base for base in settings.__mro__ if is_dataclass(base)]
    names = dict.fromkeys(name for base in (*reversed(derived), root) for name in get_annotations(base))
    declared = {one.name: one.metadata.get("key") for one in fields(settings)}
    return {name: found for name in names if (found := declared[name]) is not None}
