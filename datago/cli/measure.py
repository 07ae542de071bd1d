"""Timing, for `datago bench` and bench/. It needs only the standard library and the package that it times, because interpreters of other
environments run it as a script to time the package that they have under the name datago.
"""

import json
import resource
import sys
import time
from typing import Any

Row = dict[str, Any]


class Meter:
    """Counts items for `seconds` from the first one on. The rate leaves out the time to the first item of each pass."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._used, self._begin = cpu(), time.perf_counter()
        self.count, self.last = 0, self._begin
        self.first: float | None = None
        self._firsts, self._idle, self._waits = 0, 0.0, True

    def begin_pass(self) -> None:
        self._waits = True

    def add(self, count: int = 1) -> bool:
        """Counts items. Returns False once `seconds` are over."""
        now = time.perf_counter()
        if self.first is None:
            self.first = now
        elif self._waits:
            self._idle += now - self.last
        if self._waits:
            self._firsts, self._waits = self._firsts + count, False
        self.last = now
        self.count += count
        return now - self.first < self._seconds

    def row(self, processes: int = 0, whole: bool = False) -> Row:
        """images/s, CPU ms per image, peak MB, ms to the first image and the seconds that the rate rests on; {"n": 0} if nothing was
        counted. "warning" says so where these are less than one: a rate of so short a time differs much from run to run.

        Args:
            processes: the number of child processes whose memory counts too.
            whole: whether the rate includes the time to the first image.
        """
        if self.first is None:
            return {"n": 0}
        later, busy = self.count - self._firsts, self.last - self.first - self._idle
        if whole or not later or busy <= 0:
            later, busy = self.count, max(self.last - self._begin, 1e-9)
        short = {} if busy >= 1 else {"warning": f"its rate rests on {busy:.2f} s only: raise --seconds, or take a larger source"}
        used, unit = [resource.getrusage(who).ru_maxrss for who in WHO], 2**20 if sys.platform == "darwin" else 2**10
        return {
            "images/s": later / busy, "CPU ms": (cpu() - self._used) / self.count * 1e3,
            "MB": (used[0] + processes * used[1]) / unit, "first ms": (self.first - self._begin) * 1e3, "n": self.count, "seconds": busy,
            **short,
        }  # fmt: skip


WHO = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, WHO))


def stream(config: dict[str, Any], seconds: float = float("inf"), passes: int | None = None, pil: bool = False) -> Row:
    """Reads a client's samples, pass after pass, until `seconds` are over or `passes` are done. Returns a row, the number of failures, and
    statistics of the last pass."""
    meter = Meter(seconds)
    from datago import DatagoClient

    client = DatagoClient(json.dumps(config))
    get: Any = client.get_sample_auto_convert if pil else client.get_sample
    going, before = True, -1
    stats: dict[str, Any] = {}
    failed = 0
    while going and before != meter.count and passes != 0:  # an empty pass is not repeated
        before = meter.count
        passes = passes and passes - 1
        meter.begin_pass()
        client.start()
        while going and (sample := get()) is not None:
            image = sample["image"] if pil else sample.image  # noqa: F841 - kept until the next sample, as in a training loop
            going = meter.add()
        stats = client.stats() if hasattr(client, "stats") else {}
        failed += stats.get("failed", 0)
    row = {**meter.row(), **({"failed": failed} if stats else {})}
    row.update({key: stats[key] for key in ("bottleneck", "threads") if key in stats})
    client.stop()
    return row


if __name__ == "__main__":
    print(json.dumps(stream(**json.loads(sys.stdin.read()))))
