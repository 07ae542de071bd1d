"""Timing, for `datago bench` and bench/. It needs no more than the standard library and what it times: as a script it is also run by
interpreters of other environments, and times what they know as datago."""

import json
import resource
import sys
import time


class Meter:
    """Counts what comes by, for `seconds` from the first on. A rate leaves out the time to the first, of each pass."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._used, self._begin = cpu(), time.perf_counter()
        self.count, self.first, self.last = 0, None, self._begin
        self._firsts, self._idle, self._waits = 0, 0.0, True

    def begin_pass(self):
        self._waits = True

    def add(self, count=1):
        """False once that is enough."""
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

    def row(self, processes=0, whole=False):
        """images/s, CPU ms per image, peak MB (of `processes` children too) and ms to the first; {"n": 0} if nothing came.
        `whole`: the rate has all the time in it."""
        if not self.count:
            return {"n": 0}
        later, busy = self.count - self._firsts, self.last - self.first - self._idle
        if whole or not later or busy <= 0:
            later, busy = self.count, max(self.last - self._begin, 1e-9)
        used, unit = [resource.getrusage(who).ru_maxrss for who in WHO], 2**20 if sys.platform == "darwin" else 2**10
        return {
            "images/s": later / busy, "CPU ms": (cpu() - self._used) / self.count * 1e3,
            "MB": (used[0] + processes * used[1]) / unit, "first ms": (self.first - self._begin) * 1e3, "n": self.count,
        }  # fmt: skip


WHO = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def cpu():
    """Seconds of CPU of this process and the children that it has waited for."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, WHO))


def stream(config, seconds=float("inf"), passes=None, pil=False):
    """A client's samples, pass after pass until `seconds` are over or `passes` done: a row, how many failed, and what the last pass
    says of itself."""
    meter = Meter(seconds)
    from datago import DatagoClient

    client = DatagoClient(json.dumps(config))
    get, going, before = client.get_sample_auto_convert if pil else client.get_sample, True, -1
    stats, failed = {}, 0
    while going and before != meter.count and passes != 0:  # a pass that brings nothing is not begun again
        before = meter.count
        passes = passes and passes - 1
        meter.begin_pass()
        client.start()
        while going and (sample := get()) is not None:
            image = sample["image"] if pil else sample.image  # noqa: F841 - kept until the next, as a trainer would
            going = meter.add()
        stats = client.stats() if hasattr(client, "stats") else {}
        failed += stats.get("failed", 0)
    row = {**meter.row(), **({"failed": failed} if stats else {})}
    row.update({key: stats[key] for key in ("bottleneck", "threads") if key in stats})
    client.stop()
    return row


if __name__ == "__main__":
    print(json.dumps(stream(**json.loads(sys.stdin.read()))))
