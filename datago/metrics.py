"""stats() for those who watch: one line for a log, and OpenMetrics text."""

import re
from collections.abc import Callable, Mapping
from typing import Any

OWN_LABELS = "outcome", "reason", "ring", "side"
# family: (type, help, function of stats() that gives (labels, value) pairs)
Stats = Mapping[str, Any]  # see DatagoClient.stats
Values = list[tuple[dict[str, str], int]]
FAMILIES: dict[str, tuple[str, str, Callable[[Stats], Values]]] = {
    "datago_samples": ("counter", "Items of this pass, by what became of them.",
                       lambda s: [({"outcome": name}, s[name]) for name in ("delivered", "failed", "skipped")]),
    "datago_failures": ("counter", "Failed items, by reason.", lambda s: by_reason(s["failures"])),
    "datago_skips": ("counter", "Items that were passed over, by reason.", lambda s: by_reason(s["skips"])),
    "datago_damaged_images": ("counter", "Delivered pictures whose data cannot be right.", lambda s: [({}, s["damaged"])]),
    "datago_in_flight_samples": ("gauge", "Items between source and reader.", lambda s: [({}, s["in_flight"])]),
    "datago_in_flight_bytes": ("gauge", "Bytes of them; 0 without a memory_limit.", lambda s: [({}, s["memory"]["in_flight"])]),
    "datago_worker_threads": ("gauge", "Threads that decode.", lambda s: [({}, s["threads"])]),
    "datago_ring_depth": ("gauge", "Items in a ring now.", lambda s: by_ring(s, "depth")),
    "datago_ring_capacity": ("gauge", "Items that a ring holds.", lambda s: by_ring(s, "capacity")),
    "datago_ring_items": ("counter", "Items that went through a ring.", lambda s: by_ring(s, "passed")),
    "datago_ring_waits": ("counter", "Waits at a ring: of push, since it was full, of pop, since it was empty.",
                          lambda s: by_ring(s, "push_waits", side="push") + by_ring(s, "pop_waits", side="pop")),
}  # fmt: skip


def by_reason(counts: Mapping[str, int]) -> "Values":
    return [({"reason": reason}, count) for reason, count in sorted(counts.items())]


def by_ring(stats: "Stats", key: str, **labels: str) -> "Values":
    return [({"ring": ring, **labels}, stats[f"{ring}_ring"][key]) for ring in ("work", "ready")]


def openmetrics(stats: Stats, labels: Mapping[str, str]) -> str:
    """The text exposition of https://prometheus.io/docs/specs/om/open_metrics_spec/ ; `labels` are put on every sample."""
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
    """What happened in the last `seconds`, since `before`, and all in all."""
    speed = (stats["delivered"] - before["delivered"]) / seconds
    counts = ", ".join(f"{name.replace('_', ' ')} {stats[name]}" for name in ("seen", "delivered", "failed", "skipped", "in_flight"))
    return f"{speed:.1f} images/s; {counts}; {stats['bottleneck'] or 'nothing has come yet'}"
