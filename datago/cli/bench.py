"""Times a stream, and each of its stages alone, to find the bottleneck.

SOURCE is a config (*.json, *.toml, *.yaml), a folder of images, or shards: a path, glob or url as `url` of a webdataset config.

  list       what the source enumerates: paths, shards, or pages of records
  read       files, shards or downloads, no pixels
  decode     from memory: decode, crop, resize, encode
  hand over  the rings between threads: pictures of 8 x 8 pixels
  stream     all stages together

Each stage runs in a fresh process for --seconds, and starts again at the end of the source. A first run of the stream fills the page
cache and is not counted. A rate counts from the first sample on; "first" is the time until the first sample, including imports.
A rate that rests on less than a second has a warning.
"peak MB" of a DataLoader is the sum over its processes, so shared memory counts several times.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from datago.cli.inputs import Config, load
from datago.cli.measure import Row
from datago.cli.progress import progress
from datago.sources import registered, source_type

SUMMARY = "time a source, stage by stage, and name the bottleneck"
STAGES = "list", "read", "decode", "hand over", "stream"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a config (*.json, *.toml, *.yaml), a folder, or shards")
    add("--seconds", type=_seconds, default=3, help="for each stage (default: %(default)s)")
    add("--image-config", type=_json, metavar="JSON", help="replaces the config's image_config")
    add("--pil", action="store_true", help="read PIL images, as get_sample_auto_convert gives them")
    add(
        "--compare", type=_packages, default=[], metavar="PACKAGES",
        help="torch: a DataLoader with Pillow over a folder; webdataset: a DataLoader over shards; or both, separated by a comma",
    )  # fmt: skip
    add("--python", default=sys.executable, help="the interpreter that has these packages (default: this one)")


def _compared() -> dict[str, str]:
    """The packages that can be compared, each with its source_type."""
    return {package: name for name in registered() if (package := source_type(name).competitor)}


def _packages(text: str) -> list[str]:
    names = text.split(",")
    known = _compared()
    if set(names) - set(known):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted {', '.join(known)}, or both separated by a comma")
    return names


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None


def _seconds(text: str) -> float:
    try:
        if 0 < float(text) < 1e6:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number above 0")


def run(options: argparse.Namespace) -> int:
    config, parsed = load(options.source, options.image_config)
    rows: dict[str, Row] = {}
    stages = ("stream", *STAGES)
    with progress(len(stages) + len(options.compare), options.json) as report:
        for done, stage in enumerate(stages):
            report(stage if done else "warm-up", done)
            rows[stage] = _child([sys.executable, "-m", "datago.cli.stages"], [stage, config, options.seconds, options.pil])
        rows = {stage: rows[stage] for stage in STAGES}
        threads = rows["stream"].get("threads", 1)
        if not rows["stream"]["n"]:
            raise ValueError("the source gave no sample")
        compared: dict[str, Row] = {}
        for done, package in enumerate(options.compare, len(stages)):
            report(package, done)
            compared[package] = _compare(package, parsed, threads, options)
    found: dict[str, Any] = {"source_type": parsed.source_type, "threads": threads, "stages": rows, "compare": compared}
    found["bottleneck"] = bottleneck(rows, threads, parsed.source_type)
    print(json.dumps(found) if options.json else _text(found))
    return 0


def _child(command: list[str], given: Any) -> Row:
    """Runs a process and returns the JSON that it prints. `given` goes to its stdin as JSON, because other users can read command
    lines, and it may contain secrets. Raises ValueError if the process fails."""
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise ValueError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    found: Row = json.loads(lines[-1])
    if "error" in found:
        raise ValueError(found["error"])
    return found


def _compare(package: str, parsed: Config, threads: int, options: argparse.Namespace) -> Row:
    """The row of another package, or {"missing": the reason why there is none}."""
    kind, image = source_type(parsed.source_type), parsed.image_config
    if kind.competitor != package:
        return {"missing": f"it is compared for source_type {_compared()[package]!r} only"}
    given = {"size": image.default_image_size if image.crop_and_resize else 0, **kind.for_competitor(parsed)}
    script = __file__.replace("bench.py", "competitors.py")
    return _child([options.python, script], {"package": package, "workers": threads, "seconds": options.seconds, "given": given})


def bottleneck(rows: dict[str, Row], threads: int, kind: str) -> dict[str, Any]:
    """The stage that is slowest alone, and the most by which a faster stage could speed up the stream. The next stage, or the CPU time that
    is left on `threads` CPUs, then limits the rate.

    Returns:
        A dict: `stage`; `next`, the second slowest; `twice` and `most`, the factors by which images/s could grow if the stage were twice as
        fast or took no time. Both are at least 1, and `twice` is at most 2.
    """
    # the rate of listing shards or pages cannot be compared with the rates of samples
    lists = source_type(kind).listed
    compared = [name for name in STAGES[:-1] if rows[name]["n"] and (name != "list" or lists == "samples")]
    first, then, *_ = sorted(compared, key=lambda name: rows[name]["images/s"])

    def rate(cost: float) -> float:
        """images/s if the first stage took `cost` times its time."""
        left = rows["stream"]["CPU ms"] - rows[first]["CPU ms"] * (1 - cost)
        own = [rows[first]["images/s"] / cost] if cost else []
        rates: list[float] = [rows[then]["images/s"], *own, *([threads * 1e3 / left] if left > 0 else [])]
        return min(rates)

    return {"stage": first, "next": then, "twice": rate(0.5) / rate(1), "most": rate(0) / rate(1)}


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['source_type']}, {found['threads']} worker threads", f"{'':11}images/s  CPU ms/image  peak MB  first ms"]
    listed = source_type(found["source_type"]).listed
    for name, row in [*found["stages"].items(), *found["compare"].items()]:
        if "missing" in row:
            lines.append(f"{name:11}not compared: {row['missing']}")
        elif not row["n"]:
            lines.append(f"{name:11}no samples")
        elif name == "list" and listed != "samples":
            lines.append(f"{name:11}{row['images/s']:8.0f}  {listed}/s")
        else:
            lines.append(f"{name:11}{row['images/s']:8.0f}{row['CPU ms']:14.3f}{row['MB']:9.0f}{row['first ms']:10.1f}")
    stream, stages, slow = found["stages"]["stream"], found["stages"], found["bottleneck"]
    for name, row in found["compare"].items():
        if row.get("n"):
            lines.append(f"datago gives {stream['images/s'] / row['images/s']:.1f} times the images/s of {name}")
    lines += [f"warning: {name}: {row['warning']}" for name, row in [*stages.items(), *found["compare"].items()] if "warning" in row]
    if stream.get("failed"):
        lines.append(f"{stream['failed']} failed")
    alone, then = (f"{stages[slow[key]]['images/s']:.0f}/s" for key in ("stage", "next"))
    lines.append(f"bottleneck: {slow['stage']}, {alone} alone (next: {slow['next']}, {then})")
    lines.append(f"if it were twice as fast: up to {slow['twice']:.1f} times the images/s; if it took no time: {slow['most']:.1f} times")
    return "\n".join(lines)
