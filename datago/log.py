"""Logging through Python's `logging`, below the logger "datago".

Warnings are written to stderr even where nobody has set up logging, as Python does it for every logger. The logger "datago.client" has one
record for each failure, which would be too many: it writes nothing unless somebody asks for it.
"""

import logging
import os
import time
from typing import Any

LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "off": 100}

root = logging.getLogger("datago")
logging.getLogger("datago.client").addHandler(logging.NullHandler())


class _Formatter(logging.Formatter):
    """`[2026-11-29T20:47:28Z WARN  datago::client] text`"""

    converter = time.gmtime  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__("[%(asctime)s %(level)-5s %(place)s] %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        record.level = "WARN" if record.levelname == "WARNING" else record.levelname
        record.place = record.name.replace(".", "::")
        return super().format(record)


def initialize_logging(log_level: str | None = None) -> bool:
    """Writes datago's log records to stderr.

    Args:
        log_level: "trace", "debug", "info", "warn", "error" or "off"; "error" if None. The environment variables RUST_LOG
            and DATAGO_LOG win over it (the first that is set; a plain level, or `target=level` parts of which `datago` counts).

    Returns:
        True if the handler was installed, False if one was there.

    Raises:
        ValueError: the level is none of these.
    """
    level = _level(log_level or "error", "log_level")
    for variable in ("RUST_LOG", "DATAGO_LOG"):
        if os.environ.get(variable):
            level = _from_environment(os.environ[variable], level)
            break
    if any(isinstance(handler.formatter, _Formatter) for handler in root.handlers):
        return False
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    root.addHandler(handler)
    root.setLevel(level)
    return True


def _level(name: Any, what: str) -> int:
    if not isinstance(name, str) or name.lower() not in LEVELS:
        raise ValueError(f"{what}: got {name!r}, wanted one of {', '.join(LEVELS)}")
    return LEVELS[name.lower()]


def _from_environment(text: str, level: int) -> int:
    """The level that a filter such as `warn` or `info,datago=debug` sets for datago; unknown words are passed over."""
    for part in text.split(","):
        target, found, name = part.strip().rpartition("=")
        if name.lower() in LEVELS and (not found or target.split("::")[0] == "datago"):
            level = LEVELS[name.lower()]
    return level
