"""The JSON schema of a config, made from the declarations that the checker uses too (settings.py).

config.parse refuses every config that the schema refuses, and more: the schema cannot check keys against each other, and allows unknown
keys, for which config.parse only warns.
"""

from collections.abc import Mapping
from typing import Any

from datago import sources
from datago.config import source_keys
from datago.keys import Key, keys_of
from datago.settings import IGNORED_KEYS, Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """The schema of a whole config, with the source_config of every source that is registered."""
    top = _object(keys_of(Settings), "config")
    top["properties"]["source_type"] |= {"enum": [*sources.registered(), None]}
    names = {name: _object(keys, "source_config") for name, keys in source_keys().items()}
    return {
        "$schema": DIALECT,
        "title": "datago config",
        **top,
        "allOf": [
            {
                # A missing or null source_type means the default.
                "if": {"properties": {"source_type": {"enum": [name, None] if name == sources.DEFAULT else [name]}},
                       **({} if name == sources.DEFAULT else {"required": ["source_type"]})},
                "then": {"properties": {"source_config": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in names
        ],
        "$defs": names,
    }  # fmt: skip


def _object(keys: Mapping[str, Key], section: str) -> dict[str, Any]:
    properties = {name: _value(key, f"{section}.{name}") for name, key in keys.items()}
    ignored = {name: {"description": "Ignored.", "deprecated": True} for name in sorted(IGNORED_KEYS[section]) if name not in keys}
    required = [name for name, key in keys.items() if key.required]
    return {"type": "object", "properties": properties | ignored, **({"required": required} if required else {})}


def _value(key: Key, place: str) -> dict[str, Any]:
    schema = key.check.schema
    if key.inside is not None:
        inside = _object(keys_of(key.inside), place.removeprefix("config."))
        others = [one for one in schema.get("anyOf", [schema]) if one != {"type": "object"}]
        schema = {"anyOf": [*others, inside]} if others else inside
    if not key.required:
        schema = _or_null(schema)
    default = {} if key.required or key.default is None or key.shown else {"default": key.default}
    return {**schema, **default, "description": key.doc}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a key that may be left out; null means the same as leaving it out."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}
