"""The dict that stats() returns: what became of all items, and which part of the pipeline is the bottleneck."""

from collections.abc import Iterable
from typing import Any

from datago.losses import FAILURES_KEPT


def no_counts() -> dict[str, Any]:
    """The pool's counts as long as there is no pool: all zero."""
    ring = dict.fromkeys(("depth", "capacity", "passed", "push_waits", "pop_waits"), 0)
    counts = dict.fromkeys(("seen", "delivered", "failed", "skipped", "dropped", "in_flight", "damaged", "threads"), 0)
    return {**counts, "memory": dict.fromkeys(("limit", "in_flight", "peak"), 0), "work_ring": ring, "ready_ring": dict(ring)}


def summary(
    counts: dict[str, Any],
    skips: dict[str, int],
    failures: dict[str, int],
    last_failures: list[dict[str, str]],
    dropped: Iterable[str] = (),
) -> dict[str, Any]:
    """The dict of DatagoClient.stats: the pool's counts, in which what the source skipped (`skips`, reason -> count) counts as seen and
    skipped."""
    passed_over = sum(skips.values())
    own = {"stopped": counts["skipped"], "remainder": counts.pop("dropped")}
    skips = {**skips, **{reason: count for reason, count in own.items() if count}}
    return {
        **counts,
        "seen": counts["seen"] + passed_over,
        "skipped": sum(own.values()) + passed_over,
        "failures": failures,
        "last_failures": last_failures,
        "skips": skips,
        "dropped": list(dropped),
        "bottleneck": bottleneck(counts),
    }


def bottleneck(counts: dict[str, Any]) -> str | None:
    """A sentence that says which of source, decoding and training loop is the slowest; None before the first item. For each item a worker
    waits at most once for input and once for room in the ready ring. If it often waits for input, the source is slow; if it often
    waits for room, the training loop is slow."""
    work, ready = counts["work_ring"], counts["ready_ring"]
    if not work["passed"]:
        return None
    starved, blocked = work["pop_waits"] / work["passed"], ready["push_waits"] / work["passed"]
    if max(starved, blocked) < 0.25:
        return "decoding is slow: every worker is busy, so more or faster cores would help"
    if starved > blocked:
        return f"source is slow: workers waited for {starved:.0%} of items"
    return f"training loop is slow: {blocked:.0%} of items met a full ready queue"


def merged(several: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the stats of several passes (DatagoClient.stats)."""
    total = _sum(several)
    return {**total, "last_failures": total["last_failures"][-FAILURES_KEPT:], "bottleneck": bottleneck(total)}


def _sum(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in values for key in value if key != "bottleneck")
        return {key: _sum([value[key] for value in values if key in value]) for key in keys}
    return sum(values, [] if isinstance(first, list) else 0)
