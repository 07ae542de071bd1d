"""The base class of the tests of datago.testing: it makes configs of a source, and reads its samples, alone and by a client."""

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from datago import config as configuration
from datago.checkpoint import resume
from datago.client import DatagoClient
from datago.engine._progress import Progress
from datago.engine._sample import Entry, Failure
from datago.sources import SourceType, open_source, pass_settings, source_type
from datago.sources.settings import PassSettings

PATIENCE = 60  # seconds after which a test takes what it waits for as hanging; no test measures time
Item = tuple[bytes, int] | Entry | Failure
T = TypeVar("T")


class Opened:
    """A Source that is opened without a client, so that a test decides which entries are handed out.

    Args:
        config: a dict, as for DatagoClient.
        state: a state dict to go on from, or None.
        worker: the number of this process among the processes of its rank.
        workers: how many processes the rank has.
    """

    def __init__(
        self,
        config: dict[str, Any],
        state: dict[str, Any] | list[dict[str, Any]] | None = None,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        self._config = configuration.parse(config)
        self._run = (
            resume.resume(state, self._config, worker, workers)
            if state
            else resume.begin(self._config, self._config.epoch, worker, workers)
        )
        self._run.draw()
        self._progress = Progress()
        self._delivered = 0
        self.source = open_source(self._config, self._run, self._progress)
        self.source.open()
        self.batches = self.source.batches()

    def take(self, least: int | None = None) -> list[Item]:
        """The next entries: at least `least`, if so many are left; None: all that are left."""
        found: list[Item] = []
        for batch in self.batches:
            found += batch
            if least is not None and len(found) >= least:
                break
        return found

    def hand_out(self, entries: Iterable[Item]) -> None:
        """Marks entries as handed out, as the worker threads and the reader do."""
        for entry in entries:
            self._progress.add(position(entry), position(entry) + 1)
            self._delivered += not isinstance(entry, Failure)

    def state(self) -> dict[str, Any]:
        """The current state dict, converted to JSON and back."""
        state: dict[str, Any] = json.loads(json.dumps(self._run.state(self._config, self._delivered, self.source.state())))
        return state

    def name(self, entry: Item) -> Any:
        """A name that identifies an entry in every pass."""
        if isinstance(entry, tuple):
            return entry[0][self.source.base :]
        path = None if isinstance(entry, Failure) else entry.path
        return entry.name if path is None else os.fsencode(path)[self.source.base :]

    def names(self, least: int | None = None) -> list[Any]:
        return [self.name(entry) for entry in self.take(least)]


def position(entry: Item) -> int:
    """The position of an entry of any kind."""
    return entry[1] if isinstance(entry, tuple) else entry.position


def within_patience(work: Callable[[], T]) -> T:
    """Calls the function `work` in a thread of its own. Returns its result or raises its exception; AssertionError if it hangs."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"it hangs: no result after {PATIENCE} s"
    if "error" in outcome:
        raise outcome["error"]
    value: T = outcome["value"]
    return value


class Given:
    """The source under test."""

    size: int
    """The number of samples of `config`; at least 12. None of them fails."""

    one_order: bool = True
    """Whether with `ordered` a seed and an epoch determine the order, and other epochs have other orders."""

    def config(self) -> dict[str, Any]:
        """A config of the source: a new dict each time."""
        raise NotImplementedError

    def broken(self) -> tuple[dict[str, Any], int] | None:
        """A config with some samples that fail, and their number; None: the samples of this source cannot fail."""
        return None

    def changed(self, source: Mapping[str, Any] | None = None, **top: Any) -> dict[str, Any]:
        """`config` with other values: `source` for keys of its source_config, `top` for its own keys."""
        config = self.config()
        return {**config, **top, "source_config": {**config["source_config"], **(source or {})}}

    def on_ranks(self, world_size: int, **top: Any) -> list[dict[str, Any]]:
        """The config of each rank."""
        return [self.changed({"rank": rank, "world_size": world_size}, **top) for rank in range(world_size)]

    @property
    def kind(self) -> SourceType[Any]:
        return source_type(self.config()["source_type"])

    def seeded(self) -> dict[str, Any]:
        """Keys of a config whose order is the same in each pass, and shuffled if a seed determines the whole order."""
        return {"seed": 5, "ordered": True} if self.one_order else {"ordered": True}

    def _settings(self, rank: int, world_size: int) -> PassSettings[Any]:
        config = configuration.parse(self.changed({"rank": rank, "world_size": world_size}))
        run = resume.begin(config, config.epoch)
        run.draw()
        return pass_settings(config, run, Progress())

    def _delivered(self, config: dict[str, Any], failed: int = 0) -> list[str]:
        """The ids of the samples that a client delivers. The client's statistics are checked."""
        with DatagoClient(config) as client:
            found = []
            while (sample := client.get_sample(timeout=PATIENCE)) is not None:
                found.append(f"{sample.source}:{sample.id}")
            stats = client.stats()
        assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and not stats["in_flight"], stats
        assert set(stats["skips"]) <= {*self.kind.skips, "stopped", "remainder"}, "a reason that SourceType.skips does not have"
        assert stats["failed"] == failed and stats["delivered"] == len(found), stats
        return found
