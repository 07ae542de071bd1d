"""Makes a config of the argument of a command: a config's file, a folder, a shard or a url of shards."""

import os
import sys
import warnings
from typing import Any

from datago import config as configuration
from datago import config_file
from datago.net.url import redact, scheme_of
from datago.settings import Settings
from datago.sources import recognise

Config = Settings[Any]  # a checked config, of any source


def load(given: str, image_config: dict[str, Any] | None = None) -> tuple[dict[str, Any], Config]:
    """The config as a dict, and the same config checked. Warnings about unknown keys go to stderr.

    Args:
        given: the path of a JSON, TOML or YAML file, a folder, or anything that the key `url` of a webdataset config may be.
        image_config: replaces the config's own.

    Raises:
        ValueError, OSError: `given` is none of these, or the config is invalid. The message contains no secret.
    """
    if config_file.is_path(given) and not scheme_of(given):
        config = config_file.read(given)
    elif found := recognise(given):
        config = {"source_type": found[0], "source_config": found[1]}
    else:
        os.stat(given)  # raises the system's error if it does not exist or may not be accessed
        raise ValueError(f"{redact(given)}: neither a config (*.json, *.toml, *.yaml), nor a folder, nor shards (*.tar, a url)")
    if image_config is not None and isinstance(config, dict):
        config["image_config"] = image_config
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parsed = configuration.parse(config)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    return config, parsed
