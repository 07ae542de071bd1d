"""What sources make of the attributes of a sample: the JSON text of an object."""

import json
from typing import Any

DEEPEST = 100  # objects and lists within one another, which are parsed again wherever the reader is


def attributes_text(attributes: dict[str, Any]) -> str:
    """Their JSON text. Raises ValueError: they are nested deeper than DEEPEST."""
    text = json.dumps(attributes, ensure_ascii=False)
    if text.count("{") + text.count("[") > DEEPEST:
        values: list[Any] = [attributes]
        for _ in range(DEEPEST):
            inside = [value for value in values if isinstance(value, dict | list)]
            values = [one for value in inside for one in (value.values() if isinstance(value, dict) else value)]
        if any(isinstance(value, dict | list) for value in values):
            raise ValueError(f"attributes: nested deeper than {DEEPEST}")
    return text
