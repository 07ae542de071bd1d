"""A config that lies in a file: JSON, TOML or YAML, as the file's name ends."""

import json
import os
from collections.abc import Callable
from typing import Any

from datago import hints
from datago.errors import printable, source_os_error


def _json(data: bytes) -> Any:
    return json.loads(data)


def _toml(data: bytes) -> Any:
    import tomllib

    return tomllib.loads(data.decode())


def _yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


READERS: dict[str, Callable[[bytes], Any]] = {".json": _json, ".toml": _toml, ".yaml": _yaml, ".yml": _yaml}


def is_path(config: Any) -> bool:
    """Whether what was given as a config is the path of a file: a path object, or text that ends as the name of such a file does, which
    no JSON text of an object does."""
    return isinstance(config, os.PathLike) or (isinstance(config, str) and _suffix(config) in READERS)


def read(path: str | os.PathLike[str]) -> Any:
    """What is in a file. A ~ at the beginning of its path is the home folder. Paths in the file are taken as they stand: relative ones
    begin at the working folder of the process, not at the file.

    Raises:
        ValueError: its name ends in none of READERS, what is in it is not what that says, or YAML cannot be read here.
        SourceError: it cannot be read. The text has the system's reason.
    """
    name = os.path.expanduser(os.fsdecode(path))
    if _suffix(name) not in READERS:
        hint = hints.of_no_config(name)
        raise ValueError(f"config: got the path {printable(name)!r}, wanted one that ends in {', '.join(READERS)}{hint}")
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise source_os_error(error, "config", name) from None
    kind = _suffix(name)[1:].upper().replace("YML", "YAML")
    try:
        return READERS[_suffix(name)](data)
    except ImportError as error:
        raise ValueError(f"config: {kind} needs one more package (pip install 'datago[{kind.lower()}]'): {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"config: {printable(name)}: not {kind}: {error}") from None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()
