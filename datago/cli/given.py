"""What the commands are given: a config's file, a folder, a shard or a url of shards; as a config."""

import json
import os
import sys
import warnings

from datago import config as configuration
from datago.sources.addresses import redact, scheme_of


def load(given, image_config=None):
    """(the config as a dict, the same checked). Unknown keys are named on stderr.

    Args:
        given: the path of a JSON file, a folder, or whatever `url` of a webdataset config may be.
        image_config: takes the place of the config's own.

    Raises:
        ValueError, OSError: it is none of these, or the config is wrong; the text names no secret.
    """
    if given.endswith(".json") and not scheme_of(given):
        with open(given, encoding="utf-8") as file:
            text = file.read()
        try:
            config = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{given}: not JSON: {error}") from None
    elif os.path.isdir(given):
        config = {"source_type": "file", "source_config": {"root_path": os.path.abspath(given)}}
    elif scheme_of(given) or "{" in given or "*" in given or given.endswith((".tar", ".tar.gz", ".tgz", ".tar.zst")):
        config = {"source_type": "webdataset", "source_config": {"url": given}}
    else:
        os.stat(given)  # where nothing is there, or it may not be looked at, the system says so
        raise ValueError(f"{redact(given)}: neither a config (*.json), nor a folder, nor shards (*.tar, a url)")
    if image_config is not None and isinstance(config, dict):
        config["image_config"] = image_config
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parsed = configuration.parse(config)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    return config, parsed
