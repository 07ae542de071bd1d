"""What the loops of trainers do with a dataset, where it has to know: they are recognised by the frames that call it."""

import sys
from types import FrameType
from typing import Any, Self

# Lightning has two names. Its loops that train, and those that only evaluate.
PACKAGES = "lightning.pytorch", "pytorch_lightning"
TRAINING = tuple(f"{package}.loops.{loop}" for package in PACKAGES for loop in ("fit_loop", "training_epoch_loop"))
EVALUATING = tuple(f"{package}.loops.{loop}" for package in PACKAGES for loop in ("evaluation_loop", "prediction_loop"))
DEPTH = 16  # frames between a dataset and the loop; there are ten


class FitLoop:
    """Lightning's fit loop, as far as a dataset that it reads has to know it.

    It reads one batch ahead of a loader without a length, to know which is the last, and stores what `state_dict` of the loader says
    in a checkpoint. It asks for that on all ranks, as Trainer.save_checkpoint has a barrier on all.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    @classmethod
    def of(cls, frame: FrameType | None) -> Self | None:
        """The loop on whose behalf `frame` runs, or None."""
        if not any(package in sys.modules for package in PACKAGES):
            return None
        for _ in range(DEPTH):
            if frame is None:
                return None
            name = frame.f_globals.get("__name__", "")
            if name in TRAINING and "self" in frame.f_locals:
                return cls(frame.f_locals["self"].trainer.fit_loop)
            if name in EVALUATING or name == "multiprocessing.process":  # above that is what a forked worker's parent did
                return None
            frame = frame.f_back
        return None

    def ahead(self) -> int:
        """How many batches were handed out that are not trained on yet."""
        progress = self._loop.epoch_loop.batch_progress.current
        fetcher = self._loop._data_fetcher  # no public name says what it holds
        return len(getattr(fetcher, "batches", ())) + int(progress.ready - progress.processed)

    def next_epoch(self) -> int | None:
        """Which epoch, counted from 0, a run begins that goes on from here; None if that is in the middle of one."""
        epochs, progress = self._loop.epoch_progress.current, self._loop.epoch_loop.batch_progress
        if 0 < epochs.processed == epochs.ready:
            return int(epochs.processed)
        done = progress.current.ready == progress.current.processed
        last = progress.is_last_batch or progress.current.ready == self._loop.max_batches
        return int(epochs.processed) + 1 if done and last else None

    def epochs(self) -> int:
        """How many epochs are over."""
        return int(self._loop.epoch_progress.current.processed)

    def length_holds(self, world_size: int, workers: int, batch_size: int) -> bool:
        """Whether it may count on a length: it ends an epoch that it goes on with after so many batches, whoever read the first of them.
        So they have to be as many, of as many samples, as they would be now. All ranks say the same, as all see all ranks' states."""
        # No public name says what a checkpoint has; versions before 2.2 stored nothing of loaders.
        loaded = getattr(self._loop, "_combined_loader_states_to_load", ()) if self._loop.restarting else ()
        before = self._loop.epoch_loop.batch_progress.current.ready * batch_size
        for states in (states for states in loaded if isinstance(states, list)):
            delivered = dict.fromkeys(range(states[0]["world_size"]), 0)
            for state in states:
                delivered[state["rank"]] += state["delivered"]
            same = (len(delivered), states[0]["workers"]) == (world_size, workers) and set(delivered.values()) == {before}
            if any(delivered.values()) and not same:
                return False
        return True


def accelerate_reader(frame: FrameType) -> str | None:
    """The name of the class of accelerate's that reads the dataset for several processes, or None. It tells the dataset its epoch in every
    process, before it reads the first batch; `frame` is where it does so."""
    if "accelerate.data_loader" not in sys.modules:
        return None
    owner = frame.f_locals.get("self")
    name = type(owner).__name__  # what it says its __class__ is, is a DataLoader
    return name if name in ("DataLoaderDispatcher", "DataLoaderShard", "IterableDatasetShard") else None


def refuse_second_split(reader: str, world_size: int, same_everywhere: bool) -> None:
    """Raises ValueError where accelerate would split what is split, or what is not the same in all processes."""
    hand_over = (
        "give accelerator.prepare the dataset itself and not a DataLoader over it, or leave it out of prepare; with workers, iterate over "
        "DataLoader(dataset, batch_size=None, num_workers=N) as it is"
    )
    if world_size > 1 and reader != "DataLoaderShard":
        raise ValueError(
            f"accelerate ({reader}) would split once more what rank and world_size of source_config have split among {world_size} "
            f"processes: {hand_over}"
        )
    if reader == "IterableDatasetShard" and not same_everywhere:
        raise ValueError(
            "accelerate (IterableDatasetShard) takes each process's part of what every process reads, which wants the same order in all: "
            f'set "ordered": true and a seed; or, where each shall read only its part, set source_config.rank to "auto" and {hand_over}'
        )
