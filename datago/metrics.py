"""stats() for monitoring: as one line for a log, and as OpenMetrics text."""

import re
from collections.abc import Callable, Mapping
from typing import Any

OWN_LABELS = "outcome", "reason", "ring", "side"
Stats = Mapping[str, Any]  # see DatagoClient.stats
Values = list[tuple[dict[str, str], int]]
# For each metric family its type, its help text, and a function of stats() that returns (labels, value) pairs.
FAMILIES: dict[str, tuple[str, str, Callable[[Stats], Values]]] = {
    "datago_samples": ("counter", "Items of this pass, by what became of them.",
                       lambda s: [({"outcome": name}, s[name]) for name in ("delivered", "failed", "skipped")]),
    "datago_failures": ("counter", "Failed items, by reason.", lambda s: by_reason(s["failures"])),
    "datago_skips": ("counter", "Items that were skipped, by reason.", lambda s: by_reason(s["skips"])),
    "datago_damaged_images": ("counter", "Delivered images that were decoded from damaged data.", lambda s: [({}, s["damaged"])]),
    "datago_in_flight_samples": ("gauge", "Items between source and reader.", lambda s: [({}, s["in_flight"])]),
    "datago_in_flight_bytes": ("gauge", "Bytes of the items in flight; 0 without a memory_limit.",
                               lambda s: [({}, s["memory"]["in_flight"])]),
    "datago_worker_threads": ("gauge", "Worker threads, which decode.", lambda s: [({}, s["threads"])]),
    "datago_ring_depth": ("gauge", "Items in a ring now.", lambda s: by_ring(s, "depth")),
    "datago_ring_capacity": ("gauge", "Items that a ring holds.", lambda s: by_ring(s, "capacity")),
    "datago_ring_items": ("counter", "Items that went through a ring.", lambda s: by_ring(s, "passed")),
    "datago_ring_waits": ("counter", "Waits at a ring: to push because it was full, to pop because it was empty.",
                          lambda s: by_ring(s, "push_waits", side="push") + by_ring(s, "pop_waits", side="pop")),
}  # fmt: skip


def by_reason(counts: Mapping[str, int]) -> "Values":
    return [({"reason": reason}, count) for reason, count in sorted(counts.items())]


def by_ring(stats: "Stats", key: str, **labels: str) -> "Values":
    return [({"ring": ring, **labels}, stats[f"{ring}_ring"][key]) for ring in ("work", "ready")]


def openmetrics(stats: Stats, labels: Mapping[str, str]) -> str:
    """The OpenMetrics text format of https://prometheus.io/docs/specs/om/open_metrics_spec/ . Every sample gets `labels`.

    Raises ValueError if a label's name is invalid, or one that datago uses itself.
    """
    for name in labels:
        if not re.fullmatch(r"(?!__)[A-Za-z_][A-Za-z0-9_]*", name) or name in OWN_LABELS:
            wanted = f"letters, digits and _, none of {', '.join(OWN_LABELS)}"
            raise ValueError(f"metrics: got the label {name!r}, wanted {wanted}")
    lines = []
    for family, (kind, about, values) in FAMILIES.items():
        lines += [f"# TYPE {family} {kind}", f"# HELP {family} {about}"]
        suffix = "_total" if kind == "counter" else ""
        lines += [f"{family}{suffix}{_labels({**labels, **own})} {value}" for own, value in values(stats)]
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: object) -> str:
        return str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def line(stats: Stats, before: Stats, seconds: float) -> str:
    """A log line: the speed over the last `seconds`, since the stats `before`, and the totals."""
    speed = (stats["delivered"] - before["delivered"]) / seconds
    counts = ", ".join(f"{name.replace('_', ' ')} {stats[name]}" for name in ("seen", "delivered", "failed", "skipped", "in_flight"))
    return f"{speed:.1f} images/s; {counts}; {stats['bottleneck'] or 'no item has arrived yet'}"
