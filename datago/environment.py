"""Values from the environment: variables, and the number of CPUs that this process may use."""

import math
import os
from collections.abc import Iterator


def worker_count(limit: int, processes: int = 1) -> int:
    """How many worker threads to start: DATAGO_MAX_TASKS if that is a number (0 means 1), otherwise the usable CPUs divided by
    `processes`, the number of processes that share them; at least 1, at most `limit` and 1024."""
    try:
        count = int(os.environ["DATAGO_MAX_TASKS"])
    except (KeyError, ValueError):
        count = usable_cpus() // processes
    return max(1, min(count, limit, 1024))


def attempts() -> int:
    """How often a url is requested, retries included: DATAGO_MAX_RETRIES if that is a number (0 means once), otherwise 5."""
    try:
        return max(1, min(int(os.environ["DATAGO_MAX_RETRIES"]), 255))
    except (KeyError, ValueError):
        return 5


def usable_cpus() -> int:
    """How many CPUs this process may use, by its affinity and its control groups' quotas; at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(math.ceil(quota) for quota in _cgroup_quotas())]))


def _cgroup_quotas(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> Iterator[float]:
    """How many CPUs each control group that contains this process allows; see cgroups(7), cpu.max and cpu.cfs_quota_us."""
    try:
        with open(membership, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        base = root if controllers == "" else f"{root}/cpu" if "cpu" in controllers.split(",") else None
        steps = [step for step in path.split("/") if step]
        for depth in range(len(steps) + 1):
            if base is None:
                break
            folder = "/".join([base, *steps[:depth]])
            quota, period = _read_quota(folder, controllers == "")
            if quota > 0 and period > 0:
                yield quota / period


def _read_quota(folder: str, unified: bool) -> tuple[int, int]:
    try:
        if unified:
            with open(f"{folder}/cpu.max", encoding="ascii") as file:
                quota, period = file.read().split()
        else:
            with open(f"{folder}/cpu.cfs_quota_us", encoding="ascii") as file:
                quota = file.read()
            with open(f"{folder}/cpu.cfs_period_us", encoding="ascii") as file:
                period = file.read()
        return int(quota), int(period)
    except (OSError, ValueError):  # There is no such group here, or the quota is "max": no limit.
        return 0, 0
