"""The stats of passes that DataLoader workers read, for the process that has the DataLoader.

A worker is another process. It writes its stats into a file of its own, whole or not at all, which its parent reads: neither waits for the
other, nothing has to be drained, any number of failures finds room, and what a worker that was killed wrote last is still there. Pipes
and queues would need a reader, else the worker waits; shared memory has a size that is fixed before the first failure is known.
"""

import atexit
import json
import logging
import os
import pathlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from datago.stats import merged

log = logging.getLogger("datago.dataset")

PERIOD_S = 1.0  # between two looks at a pass that goes on; its end is written in any case
_folders: dict[int, str] = {}  # process id → this process's folder, removed when it ends


def _folder() -> str:
    pid = os.getpid()
    if pid not in _folders:
        _folders[pid] = tempfile.mkdtemp(prefix="datago-stats-")
        atexit.register(_remove, pid)
    return _folders[pid]


def _remove(pid: int) -> None:
    if pid == os.getpid():  # a forked child has the parent's list of what is to be done at the end
        shutil.rmtree(_folders.pop(pid), ignore_errors=True)


class SharedStats:
    """What all workers of one dataset wrote; it goes to them with the dataset, forked or pickled."""

    def __init__(self) -> None:
        self._prefix: str | None = None
        try:
            self._prefix = os.path.join(_folder(), secrets.token_hex(8))
        except OSError as error:
            log.warning("stats of DataLoader workers will not be known: no temporary folder: %s", error)

    def writer(self, info: Any, number: int) -> "Writer | None":
        """For the pass of a worker, the `number`th in its process; `info` is what torch's get_worker_info says. Passes that all workers
        of one iteration make have the same name: a DataLoader draws a seed for its workers whenever it starts them."""
        return Writer(f"{self._prefix}-{info.id}.json", f"{info.seed - info.id}-{number}") if self._prefix else None

    def newest(self) -> tuple[dict[str, Any] | None, float]:
        """The stats of all workers of the last pass, summed, and the time.monotonic() at which it began; None, 0 without one."""
        found = []
        if self._prefix:
            folder, name = os.path.split(self._prefix)
            for path in pathlib.Path(folder).glob(f"{name}-*.json"):
                with suppress(FileNotFoundError):
                    found.append(json.loads(path.read_bytes()))
        if not found:
            return None, 0.0
        last = max(found, key=lambda one: one["begun"])
        return merged([one["stats"] for one in found if one["pass"] == last["pass"]]), last["begun"]


class Writer:
    """Writes the stats of one worker's pass, now and then and at its end."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name
        self._begun = time.monotonic()  # one clock for all processes of a machine
        self._next = 0.0

    def write(self, stats: Callable[[], dict[str, Any]], always: bool = False) -> None:
        """`stats` is a function: it is called once a period, or always, as at the beginning and the end."""
        now = time.monotonic()
        if now < self._next and not always:
            return
        self._next = self._next if always else now + PERIOD_S
        text = json.dumps({"pass": self._name, "begun": self._begun, "stats": stats()})
        try:
            with open(f"{self._path}.new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{self._path}.new", self._path)
        except FileNotFoundError:  # whoever has the DataLoader has ended, and removed the folder
            pass
        except OSError as error:
            log.warning("the stats of this DataLoader worker could not be written: %s", error)
