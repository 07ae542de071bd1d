"""Writes the position of a pass in its epoch as a dict that JSON can write, and makes from such dicts a pass that reads the rest."""

import secrets
from dataclasses import asdict, dataclass, replace
from typing import Any

from datago.checkpoint.state import VERSION, checked, selection
from datago.checks import MAX_INT
from datago.order import plan, ranks
from datago.settings import Settings
from datago.sources import registered, source_type


@dataclass
class Run:
    """The values that decide which samples one pass gives, and in which order.

    Attributes:
        seed: the seed of the shuffled order, or None if it is not drawn yet.
        seed_is_random: whether the seed was drawn at random for this stream alone, so that streams do not share one order.
        rank, world_size, worker, workers: see plan.py.
        delivered: how many good samples were handed out before this pass, in this epoch and with this number of ranks and workers.
        spent: how much of this stream's part of the limit was used before that, with other numbers of ranks or workers. It is
            negative if the stream's part has grown.
        resume: the result of Source.state in an earlier pass, or None if nothing was read.
    """

    epoch: int
    seed: int | None
    seed_is_random: bool
    shuffled: bool
    uneven: str
    rank: int
    world_size: int
    worker: int = 0
    workers: int = 1
    delivered: int = 0
    spent: int = 0
    resume: dict[str, Any] | None = None

    @property
    def stream(self) -> int:
        return self.rank + self.world_size * self.worker

    @property
    def streams(self) -> int:
        return self.world_size * self.workers

    def draw(self) -> None:
        """Draws a random seed if there is none. It is called when the pass starts."""
        if self.seed is None:
            self.seed = secrets.randbits(64)

    def of_source(self) -> dict[str, Any]:
        names = ("epoch", "seed", "seed_is_random", "rank", "world_size", "stream", "streams", "resume")
        return {name: getattr(self, name) for name in names}

    def left(self, limit: int) -> int:
        """How many more good samples the config's `limit` allows this stream."""
        return min(MAX_INT, max(0, plan.portion(limit, self.worker, self.workers) - self.spent - self.delivered))

    def state(self, config: Settings[Any], delivered: int, source: dict[str, Any] | None, ended: bool = False) -> dict[str, Any]:
        """The state dict after `delivered` more samples. `source` is the result of Source.state; `ended` says whether the reader has
        reached the end."""
        values = {**asdict(replace(self, resume=None)), "delivered": self.delivered + delivered, "drawn": self.seed_is_random}
        del values["resume"], values["seed_is_random"]  # In the state's format this key is "drawn".
        of_config = {"source_type": config.source_type, "selection": selection(config)}
        return {"version": VERSION, **of_config, **values, "ended": ended, "source": source}


def begin(config: Settings[Any], epoch: int, worker: int = 0, workers: int = 1) -> Run:
    """A Run from the beginning of an epoch."""
    source = config.source_config
    rank, world_size = ranks.resolve(source.rank, source.world_size)
    return Run(epoch, config.seed, config.seed is None, source.random_sampling, config.uneven, rank, world_size, worker, workers)


def resume(states: Any, config: Settings[Any], worker: int = 0, workers: int = 1) -> Run:
    """The Run that gives what is left of an epoch.

    Args:
        states: a state dict, or a list with the state dicts of all streams, which is needed if the number of ranks or workers has changed.

    Raises:
        ValueError: `states` is not such a dict or list, or does not fit the config or this rank; the text says why.
    """
    states = checked(states, config)
    now, first = begin(config, states[0]["epoch"], worker, workers), states[0]
    if (first["world_size"], first["workers"]) == (now.world_size, now.workers):
        own = source_type(config.source_type).own_state([state for state in states if state["rank"] == now.rank], now.worker)
        if own is None:
            raise ValueError(
                f"state: saved by rank {first['rank']} of {first['world_size']}, worker {first['worker']}; this is rank {now.rank}, "
                f"worker {now.worker}: every rank saves and loads its own, or all load the list of all, which "
                "datago.gather_state(state) gives when all ranks call it before one of them saves"
            )
        now = replace(now, delivered=own["delivered"], spent=own["spent"], resume=own["source"])
        return now if own["seed"] is None else replace(now, seed=own["seed"], seed_is_random=own["drawn"])
    return _restriped(states, now, config)


def _restriped(states: list[dict[str, Any]], now: Run, config: Settings[Any]) -> Run:
    """The Run if the number of streams has changed: the samples that no stream has handed out are divided among the new streams."""
    first = states[0]
    before, streams = first["world_size"], first["world_size"] * first["workers"]
    by_stream = {s["rank"] + before * s["worker"]: s for s in states}
    whole = len(states) == streams and sorted(by_stream) == list(range(streams))
    if whole and all(s["source"] is None and s["spent"] == 0 for s in states):
        return now  # nothing was read: any number of streams begins
    what = f"the state is of world_size {before} with {first['workers']} workers, this run has {now.world_size} with {now.workers}"
    kind = source_type(config.source_type)
    if not kind.can_restripe:
        able = " and ".join(name for name in registered() if source_type(name).can_restripe)
        raise ValueError(f"world_size: {what}: only the {able} source can be resumed with another number")
    if not whole:
        raise ValueError(
            f"world_size: {what}: load the list of the states of all {streams} streams (there are {len(states)}), which "
            "datago.gather_state(state) gives"
        )
    if first["shuffled"] and first["drawn"] and streams > 1:
        raise ValueError(f"world_size: {what}: without a seed every rank shuffled an order of its own: set seed in the config")
    states = [by_stream[stream] for stream in range(streams)]
    run = now if first["seed"] is None else replace(now, seed=first["seed"], seed_is_random=first["drawn"] and not first["shuffled"])
    run.resume = kind.restripe(states)
    if config.limit < MAX_INT:
        left = sum(plan.portion(config.limit, s["worker"], s["workers"]) - s["spent"] - s["delivered"] for s in states)
        run.spent = plan.portion(config.limit, now.worker, now.workers) - plan.portion(left, now.stream, now.streams)
    return run
