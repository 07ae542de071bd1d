"""Validates a config, describes it, lists its buckets and counts what it would read. A folder is listed, shards are checked (at most 64
of those behind urls) and counted by their shard_index, and a database is queried. No image is read or decoded.

The output contains no key, token or query of a url. If the config is invalid or its source does not exist, the exit status is 1, after
one line on stderr.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from datago import geometry
from datago.cli.inputs import Config, load
from datago.cli.progress import progress
from datago.settings import ImageSettings
from datago.sources import source_type
from datago.sources.settings import PassSettings

SUMMARY = "validate a config, describe it, count what it would read"


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("config", metavar="CONFIG", nargs="?", help="a JSON, TOML or YAML file, or a folder or shards, as for bench")
    add("--schema", action="store_true", help="print the JSON schema of configs, for editors and validators, and end")
    add(
        "--ranks", type=int, nargs="?", const=0, metavar="N",
        help="count the samples of each of N ranks (default: the config's world_size)",
    )  # fmt: skip


def run(options: Namespace) -> int:
    from datago.order import ranks

    if options.schema:
        from datago.schema import config_schema

        print(json.dumps(config_schema(), indent=2, ensure_ascii=False))
        return 0
    if options.config is None:
        raise ValueError("CONFIG: missing, wanted a JSON, TOML or YAML file, a folder or shards")
    if options.ranks is not None and options.ranks < 0:
        raise ValueError(f"--ranks: got {options.ranks}, wanted at least 1")
    _, config = load(options.config)
    source = config.source_config
    rank, world_size = ranks.resolve(source.rank, source.world_size)
    world_size = options.ranks or world_size
    buckets = [list(size) for size in geometry.sizes(config.image_config)]
    found: dict[str, Any] = {"source_type": config.source_type, "meaning": meaning(config), "buckets": buckets}
    shown = range(world_size) if options.ranks is not None else [rank]
    with progress(quiet=options.json) as report:
        survey = source_type(config.source_type).survey(config, shown, world_size, partial(_settings, config), report)
    for warning in survey.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    found["found"] = survey.found
    found["ranks"] = [
        {"rank": number, "world_size": world_size, **counts, "delivers": _delivers(counts, config.limit)}
        for number, counts in zip(shown, survey.ranks, strict=True)
    ]
    print(json.dumps(found) if options.json else _text(found))
    return 0


def _delivers(counts: dict[str, Any], limit: int) -> int | None:
    """The number of samples that a pass delivers if none fails; None: not known."""
    from datago.checks import MAX_INT

    count: int | None = counts["samples"]
    return min(count, limit) if count is not None else limit if limit < MAX_INT and counts.get("shards") != 0 else None


# ---- in words -------------------------------------------------------------------------------------------------------


def meaning(config: Config) -> list[str]:
    """Describes a checked config in sentences."""
    from datago.checks import MAX_INT

    image, seed, kind = config.image_config, config.seed, source_type(config.source_type)
    lines = kind.describe(config)
    if not config.source_config.random_sampling:
        order = "in the order of the source"
    elif kind.own_order:
        order = kind.own_order
    elif seed is None:
        order = "shuffled, in another order each time"
    else:
        order = f"shuffled by seed {seed}, epoch {config.epoch}"
    lines.append(f"Samples come {order}{', exactly' if config.ordered else ', roughly: as threads are done'}.")
    if config.source_config.world_size != 1:
        shares = {"keep": "each sample once", "drop": "as many on each, the rest dropped", "pad": "as many on each, some twice"}
        lines.append(f"This is rank {config.source_config.rank} of {config.source_config.world_size}: {shares[config.uneven]}.")
    if config.limit < MAX_INT:
        lines.append(f"A pass ends after {config.limit} good samples.")
    lines += _of_images(image)
    lines.append("What fails raises SampleError." if config.on_error == "raise" else "What fails is counted and passed over.")
    if config.memory_limit:
        lines.append(f"At most {config.memory_limit} bytes are in flight.")
    return lines


def _of_images(image: ImageSettings) -> Iterator[str]:
    how = f"{image.interpolation}, {image.resize_mode}"
    if image.random_resized_crop:
        resized = image.random_resized_crop
        yield (
            f"Of each picture a box of {resized.scale[0]:g} to {resized.scale[1]:g} of its area is drawn, and resized to "
            f"{resized.size[0]} x {resized.size[1]} ({how})."
        )
    elif image.crop_and_resize:
        where = "anywhere" if image.random_crop else "about the centre"
        yield f"Each picture is cropped {where} and resized to the bucket nearest to its shape ({how})."
    elif image.resize or image.center_crop or image.pad:
        yield f"Each picture is {', then '.join(_steps(image))} ({how})."
    else:
        yield "Pictures keep their size."
    if image.horizontal_flip:
        yield f"{image.horizontal_flip:.0%} of them are mirrored."
    if image.image_to_rgb8:
        yield "All become 8-bit RGB."
    if image.pre_encode_images:
        yield f"Samples hold {image.encode_format.upper()} files."


def _steps(image: ImageSettings) -> Iterator[str]:
    if isinstance(image.resize, int):
        yield f"resized to {image.resize} on its shorter side"
    elif image.resize:
        yield "resized to {} x {}".format(*image.resize)
    elif image.pad and not image.center_crop:
        yield "resized to fit inside {} x {}".format(*image.pad.size)
    if image.center_crop:
        yield "cropped about its centre to {} x {}".format(*image.center_crop)
    if image.pad:
        yield "padded to {} x {}".format(*image.pad.size)


def _settings(config: Config, rank: int, world_size: int) -> PassSettings[Any]:
    """The settings of the source of one rank."""
    from datago.checkpoint import resume
    from datago.engine._progress import Progress
    from datago.sources import pass_settings

    config = replace(config, source_config=replace(config.source_config, rank=rank, world_size=world_size))
    run = resume.begin(config, config.epoch)
    run.draw()
    return pass_settings(config, run, Progress())


# ---- what is printed ------------------------------------------------------------------------------------------------


def _text(found: dict[str, Any]) -> str:
    lines = list(found["meaning"])
    if found["buckets"]:
        sizes = [f"{width} x {height}" for width, height in found["buckets"]]
        lines.append(f"{len(sizes)} bucket{'s' * (len(sizes) > 1)} (width x height): {', '.join(sizes)}")
    total: dict[str, Any] = dict(found["found"])
    skipped = total.pop("skipped", {})
    total = {name: count for name, count in total.items() if count != 0 or name == "samples"}
    parts = [f"{'an unknown number of' if count is None else count} {name}" for name, count in total.items()]
    parts += [f"{count} passed over ({reason})" for reason, count in skipped.items()]
    lines.append(f"Found: {', '.join(parts)}.")
    for row in found["ranks"]:
        if row["world_size"] > 1 or row["delivers"] != total["samples"]:
            shards = f"{row['shards']} shards{', shared sample by sample' if row.get('shared') else ''}; " if "shards" in row else ""
            delivers = "an unknown number of" if row["delivers"] is None else row["delivers"]
            lines.append(f"rank {row['rank']} of {row['world_size']}: {shards}{delivers} samples")
    return "\n".join(lines)
