"""What the tests of datago.testing are given, and how they read from it: sources alone, and by a client."""

import json
import threading
from typing import Any

from datago import config as configuration
from datago.checkpoint import resume
from datago.client import DatagoClient
from datago.engine._progress import Progress
from datago.engine._sample import Failure
from datago.sources import open_source, pass_settings, source_type

PATIENCE = 60  # seconds after which something hangs; nothing is measured by them


class Opened:
    """A Source alone, opened, without a client: its `entries` are handed out as a test wants.

    Args:
        config: a dict, as for DatagoClient.
        state: a state dict to go on from, or None.
        worker, workers: which of the rank's processes this is, of how many.
    """

    def __init__(self, config, state=None, worker=0, workers=1):
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

    def take(self, most=None):
        """The next entries: at least `most`, if there are so many; or all that are left."""
        found = []
        for batch in self.batches:
            found += batch
            if most is not None and len(found) >= most:
                break
        return found

    def hand_out(self, entries):
        """What the worker threads and the reader do for each of them."""
        for entry in entries:
            self._progress.add(position(entry), position(entry) + 1)
            self._delivered += not isinstance(entry, Failure)

    def state(self):
        """The state dict of this moment, by way of JSON."""
        return json.loads(json.dumps(self._run.state(self._config, self._delivered, self.source.state())))

    def name(self, entry):
        """What tells one entry from another, in every pass."""
        if isinstance(entry, tuple):
            return entry[0][self.source.base :]
        return entry.name if isinstance(entry, Failure) else f"{entry.source}:{entry.id}"

    def names(self, most=None):
        return [self.name(entry) for entry in self.take(most)]


def position(entry):
    """The position of an entry of any kind."""
    return entry[1] if isinstance(entry, tuple) else entry.position


def within_patience(work):
    """What the function `work` gives, run in a thread of its own; AssertionError where it hangs, whatever it raised where it did."""
    outcome = {}

    def run():
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


class Given:
    """The source that is tested."""

    size: int
    """How many samples `config` has; at least 12. None of them fails."""

    one_order: bool = True
    """Whether a seed decides the whole order where `ordered` is set, and other epochs have others."""

    def config(self) -> dict[str, Any]:
        """A config of the source: a new dict each time."""
        raise NotImplementedError

    def broken(self) -> tuple[dict[str, Any], int] | None:
        """A config of which some samples fail, and how many of them; None: this source's samples cannot."""
        return None

    def changed(self, source=(), **top):
        config = self.config()
        return {**config, **top, "source_config": {**config["source_config"], **dict(source)}}

    def on_ranks(self, world_size, **top):
        return [self.changed({"rank": rank, "world_size": world_size}, **top) for rank in range(world_size)]

    @property
    def kind(self):
        return source_type(self.config()["source_type"])

    def seeded(self):
        """What makes a pass come in an order that is shuffled, where the source can have one, and the same each time."""
        return {"seed": 5, "ordered": True} if self.one_order else {"ordered": True}

    def _settings(self, rank, world_size):
        config = configuration.parse(self.changed({"rank": rank, "world_size": world_size}))
        run = resume.begin(config, config.epoch)
        run.draw()
        return pass_settings(config, run, Progress())

    def _delivered(self, config, failed=0):
        """The ids that a client gives; its accounts are checked."""
        with DatagoClient(config) as client:
            found = []
            while (sample := client.get_sample(timeout=PATIENCE)) is not None:
                found.append(f"{sample.source}:{sample.id}")
            stats = client.stats()
        assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and not stats["in_flight"], stats
        assert set(stats["skips"]) <= {*self.kind.skips, "stopped", "remainder"}, "a reason that SourceType.skips does not have"
        assert stats["failed"] == failed and stats["delivered"] == len(found), stats
        return found
