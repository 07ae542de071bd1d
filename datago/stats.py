"""What stats() says: where every item went, and which side the others wait for."""

from datago.losses import FAILURES_KEPT


def no_counts():
    """The pool's counts before there is a pool."""
    ring = dict.fromkeys(("depth", "capacity", "passed", "push_waits", "pop_waits"), 0)
    counts = dict.fromkeys(("seen", "delivered", "failed", "skipped", "dropped", "in_flight", "damaged", "threads"), 0)
    return {**counts, "memory": dict.fromkeys(("limit", "in_flight", "peak"), 0), "work_ring": ring, "ready_ring": dict(ring)}


def summary(counts, skips, failures, last_failures, dropped=()):
    """The dict of DatagoClient.stats: the pool's counts, with what the source passed over (`skips`, reason -> count) seen and
    skipped too."""
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


def bottleneck(counts):
    """Who waits tells who is slow: a worker sleeps once an item at most on either of its rings."""
    work, ready = counts["work_ring"], counts["ready_ring"]
    if not work["passed"]:
        return None
    starved, blocked = work["pop_waits"] / work["passed"], ready["push_waits"] / work["passed"]
    if max(starved, blocked) < 0.25:
        return "decoding: every worker is busy (more or faster cores would help)"
    if starved > blocked:
        return f"source: workers waited for it before {starved:.0%} of the items"
    return f"reader: workers waited for it after {blocked:.0%} of the items"


def merged(several):
    """The sum of the stats of several passes (DatagoClient.stats)."""
    total = _sum(several)
    return {**total, "last_failures": total["last_failures"][-FAILURES_KEPT:], "bottleneck": bottleneck(total)}


def _sum(values):
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in values for key in value if key != "bottleneck")
        return {key: _sum([value[key] for value in values if key in value]) for key in keys}
    return sum(values, [] if isinstance(first, list) else 0)
