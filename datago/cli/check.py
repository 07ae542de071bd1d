"""Validates a config, says what it means, lists its buckets and counts what it would read: a folder is listed, shards are looked at
(64 at most of those behind urls) and counted by their shard_index, a database is asked. No image is read or decoded.

What is printed holds no key, token or query of a url. The exit status is 1, after one line on stderr, where the config is wrong or its
source is not there.
"""

import copy
import json
import os
import sys

from datago.cli.given import load
from datago.cli.progress import progress
from datago.errors import printable

SUMMARY = "validate a config, say what it means, count what it would read"
NAMED = 10  # folders that cannot be listed


def add_arguments(parser):
    add = parser.add_argument
    add("config", metavar="CONFIG", help="a JSON file; or a folder, or shards, as for bench")
    add(
        "--ranks", type=int, nargs="?", const=0, metavar="N",
        help="count rank by rank, of N ranks (default: as many as the config has)",
    )  # fmt: skip


def run(options):
    from datago import ranks

    if options.ranks is not None and options.ranks < 0:
        raise ValueError(f"--ranks: got {options.ranks}, wanted at least 1")
    _, config = load(options.config)
    source = config.source_config
    rank, world_size = ranks.resolve(source.rank, source.world_size)
    world_size = options.ranks or world_size
    found = {"source_type": config.source_type, "meaning": meaning(config), "buckets": buckets(config.image_config)}
    shown = range(world_size) if options.ranks is not None else [rank]
    with progress(quiet=options.json) as report:
        total, per_rank = _COUNTS[config.source_type](config, shown, world_size, report)
    found["found"] = total
    found["ranks"] = [
        {"rank": number, "world_size": world_size, **counts, "delivers": _delivers(counts, config.limit)}
        for number, counts in zip(shown, per_rank, strict=True)
    ]
    print(json.dumps(found) if options.json else _text(found))
    return 0


def _delivers(counts, limit):
    """Good samples that a pass gives if nothing fails; None: not known."""
    from datago.checks import MOST

    count = counts["samples"]
    return min(count, limit) if count is not None else limit if limit < MOST and counts.get("shards") != 0 else None


# ---- in words -------------------------------------------------------------------------------------------------------


def meaning(config):
    """What a checked config asks for: a list of sentences."""
    from datago.checks import MOST

    image, seed = config.image_config, config.seed
    lines = [_SOURCES[config.source_type](config.source_config)]
    if not config.source_config.random_sampling:
        order = "in the order of the source"
    elif config.source_type == "db":
        order = "as the server draws them at random"
    elif seed is None:
        order = "shuffled, in another order each time"
    else:
        order = f"shuffled by seed {seed}, epoch {config.epoch}"
    lines.append(f"Samples come {order}{', exactly' if config.ordered else ', roughly: as threads are done'}.")
    if config.source_config.world_size != 1:
        shares = {"keep": "each sample once", "drop": "as many on each, the rest dropped", "pad": "as many on each, some twice"}
        lines.append(f"This is rank {config.source_config.rank} of {config.source_config.world_size}: {shares[config.uneven]}.")
    if config.limit < MOST:
        lines.append(f"A pass ends after {config.limit} good samples.")
    lines += _of_images(image)
    lines.append({"skip": "What fails is counted and passed over.", "raise": "What fails raises SampleError."}[config.on_error])
    if config.memory_limit:
        lines.append(f"At most {config.memory_limit} bytes are in flight.")
    return lines


def _of_folder(source):
    return f"Images below {os.fspath(source.root_path)!r}."


def _of_shards(source):
    from datago.sources.addresses import redact

    urls = source.url if isinstance(source.url, list | tuple) else [source.url]
    text = ", ".join(redact(os.fspath(url)) for url in urls[:3]) + (f" and {len(urls) - 3} more" if len(urls) > 3 else "")
    kept = f"; shards are kept in {os.fspath(source.cache_dir)!r}" if source.cache_dir else ""
    return f"Samples in the shards {text}, the main image is *.{source.reference_image_type}{kept}."


def _of_database(source):
    from datago.filters import parameters
    from datago.sources.addresses import redact

    url = source.api_url or os.environ.get("DATAROOM_API_URL", "") or "(DATAROOM_API_URL is not set)"
    wanted = [f"{name}={value}" for name, value in parameters(source)]
    images = "records with images" if source.require_images else "records without images"
    return f"A database at {redact(url)}: {images}, {source.page_size} a page, {' '.join(wanted) or 'all of them'}."


_SOURCES = {"file": _of_folder, "webdataset": _of_shards, "db": _of_database}


def _of_images(image):
    if image.random_resized_crop:
        resized = image.random_resized_crop
        yield (
            f"Of each picture a box of {resized.scale[0]:g} to {resized.scale[1]:g} of its area is drawn, and resized to "
            f"{resized.size[0]} x {resized.size[1]} ({image.resize_mode})."
        )
    elif image.crop_and_resize:
        where = "anywhere" if image.random_crop else "about the centre"
        yield f"Each picture is cropped {where} and resized to the bucket nearest to its shape ({image.resize_mode})."
    else:
        yield "Pictures keep their size."
    if image.horizontal_flip:
        yield f"{image.horizontal_flip:.0%} of them are mirrored."
    if image.image_to_rgb8:
        yield "All become 8-bit RGB."
    if image.pre_encode_images:
        yield f"Samples hold {image.encode_format.upper()} files."


def buckets(image):
    """[width, height] of what pictures may become; [] where they keep their size."""
    from datago import aspect_buckets

    if image.random_resized_crop:
        return [list(image.random_resized_crop.size)]
    if not image.crop_and_resize:
        return []
    found = aspect_buckets(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio, image.max_aspect_ratio)
    return [list(size) for size in found]


# ---- counts: (of all ranks together, of each one that is asked for) -------------------------------------------------


def _count_folder(config, shown, world_size, report):
    from datago import plan
    from datago._sample import Failure
    from datago.sources.tree import Tree

    root, skipped, images = os.fspath(config.source_config.root_path), {}, 0
    tree = Tree(os.fsencode(root), skipped)
    for step in tree.walk():
        images += 0 if isinstance(step, Failure) else len(step)
        report(f"images below {root}", images)
    if not images:
        raise tree.nothing()
    for failure in tree.unread[:NAMED]:
        print(f"warning: {printable(failure.name)}: {failure.text}", file=sys.stderr)
    shares = [len(plan.share(images, rank, world_size, world_size, config.uneven)) for rank in shown]
    return {"samples": images, "unreadable folders": len(tree.unread), "skipped": skipped}, [{"samples": count} for count in shares]


def _count_shards(config, shown, world_size, report):
    from datago.cli.present import look
    from datago.environment import attempts
    from datago.sources import urls
    from datago.sources.part import Part
    from datago.sources.shard_index import sample_counts

    source = config.source_config
    options = {"token": source.auth_token, "timeout": source.timeout, "attempts": attempts(), "stop": None}
    report("shards", 0)
    shards = urls.shard_urls(source.url, **options)
    counts = sample_counts(source.shard_index, shards, options) if source.shard_index else None
    looked_at = look(shards, options)
    found = []
    for rank in shown:
        part = Part(_on_rank(config, rank, world_size), shards, counts)
        found.append({"shards": len(part.shards), "samples": part.count if part.target is None else part.target})
        if part.by_sample:
            found[-1]["shared"] = True
    some = {"looked at": looked_at} if looked_at < len(shards) else {}
    return {"shards": len(shards), **some, "samples": None if counts is None else sum(counts)}, found


def _count_records(config, shown, world_size, report):
    from datago.sources import db

    def ask(rank, of):
        report("asking the database", 0)
        return db.count(_on_rank(config, rank, of))

    total = ask(0, 1)
    if config.source_config.random_sampling:  # there are no partitions: the ids decide, and only a walk would tell
        return {"samples": total}, [{"samples": total if world_size == 1 else None} for _ in shown]
    return {"samples": total}, [{"samples": ask(rank, world_size) if world_size > 1 else total} for rank in shown]


_COUNTS = {"file": _count_folder, "webdataset": _count_shards, "db": _count_records}


def _on_rank(config, rank, world_size):
    """What a source of that rank is made of."""
    from datago import resume
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
