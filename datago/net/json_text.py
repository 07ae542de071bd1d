"""JSON from a server, checked before it is parsed: objects in memory take many times the room of their text."""

import json
from typing import Any

MOST_PARTS = 20_000_000  # values; a listing or index of a million shards has six millions
MOST_CONTAINERS = 4_000_000  # objects and arrays, at some hundred bytes each


def parse_json(data: bytes | bytearray) -> Any:
    """The value of some bytes. Raises ValueError, whatever is wrong with them."""
    if data.count(b"{") + data.count(b"[") > MOST_CONTAINERS or data.count(b",") > MOST_PARTS:
        raise ValueError("too many objects and values")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("objects within one another too deep") from None
    except MemoryError:
        raise ValueError("too large for the memory") from None
