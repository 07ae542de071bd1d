"""Validates a config, says what it means, lists its buckets and counts what it would read: a folder is listed, shards are looked at
(64 at most of those behind urls) and counted by their shard_index, a database is asked. No image is read or decoded.

What is printed holds no key, token or query of a url. The exit status is 1, after one line on stderr, where the config is wrong or its
source is not there.
"""

import copy
import json
import sys
from functools import partial

from datago import geometry
from datago.cli.inputs import load
from datago.cli.progress import progress
from datago.sources import source_type

SUMMARY = "validate a config, say what it means, count what it would read"


def add_arguments(parser):
    add = parser.add_argument
    add("config", metavar="CONFIG", help="a JSON file; or a folder, or shards, as for bench")
    add(
        "--ranks", type=int, nargs="?", const=0, metavar="N",
        help="count rank by rank, of N ranks (default: as many as the config has)",
    )  # fmt: skip


def run(options):
    from datago.order import ranks

    if options.ranks is not None and options.ranks < 0:
        raise ValueError(f"--ranks: got {options.ranks}, wanted at least 1")
    _, config = load(options.config)
    source = config.source_config
    rank, world_size = ranks.resolve(source.rank, source.world_size)
    world_size = options.ranks or world_size
    buckets = [list(size) for size in geometry.sizes(config.image_config)]
    found = {"source_type": config.source_type, "meaning": meaning(config), "buckets": buckets}
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


def _delivers(counts, limit):
    """Good samples that a pass gives if nothing fails; None: not known."""
    from datago.checks import MAX_INT

    count = counts["samples"]
    return min(count, limit) if count is not None else limit if limit < MAX_INT and counts.get("shards") != 0 else None


# ---- in words -------------------------------------------------------------------------------------------------------


def meaning(config):
    """What a checked config asks for: a list of sentences."""
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
    lines.append({"skip": "What fails is counted and passed over.", "raise": "What fails raises SampleError."}[config.on_error])
    if config.memory_limit:
        lines.append(f"At most {config.memory_limit} bytes are in flight.")
    return lines


def _of_images(image):
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


def _steps(image):
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


def _settings(config, rank, world_size):
    """What a source of that rank is made of."""
    from datago.checkpoint import resume
    from datago.sources import section

    config = copy.copy(config)
    config.source_config = copy.copy(config.source_config)
    config.source_config.rank, config.source_config.world_size = rank, world_size
    run = resume.begin(config, config.epoch)
    run.draw()
    return section(config, run, None)


# ---- what is printed ------------------------------------------------------------------------------------------------


def _text(found):
    lines = list(found["meaning"])
    if found["buckets"]:
        sizes = [f"{width} x {height}" for width, height in found["buckets"]]
        lines.append(f"{len(sizes)} bucket{'s' * (len(sizes) > 1)} (width x height): {', '.join(sizes)}")
    total = dict(found["found"])
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
