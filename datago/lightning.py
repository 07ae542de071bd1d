"""Lightning: data that goes on exactly where a checkpoint was, on any number of ranks, with DataLoader workers or without.

    data = datago.lightning.DataModule(DatagoBatchDataset(config, batch_size=64), workers=2)
    trainer.fit(model, data, ckpt_path="last.ckpt")

`trainer.fit(model, dataset)` does the same where no workers are wanted: the Trainer reads both as they are. Each pass is another epoch, and
what goes into its checkpoints is the state of all ranks, as of the last batch that was trained on. `import datago` does not load it.
"""

import sys
from collections.abc import Iterator
from typing import Any

from datago.batches import DatagoBatchDataset
from datago.dataset import DatagoIterDataset, DataLoader
from datago.trainers import FitLoop

# Lightning has two names, of which a program uses one.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    import pytorch_lightning as pl
else:
    import lightning.pytorch as pl

__all__ = ["DataModule", "Loader"]


class Loader:
    """A DataLoader with workers over a dataset, with the states that Lightning's Trainer stores and loads.

    Args:
        dataset: its batches are handed on as the workers make them.
        workers: processes, at least 1; without any, the dataset itself is a loader that the Trainer can store.
        options: of torch.utils.data.DataLoader, such as persistent_workers, prefetch_factor, pin_memory.

    Raises ValueError: the dataset yields Samples, which no process can hand to another.
    """

    def __init__(self, dataset: DatagoIterDataset, workers: int, **options: Any) -> None:
        if not isinstance(dataset, DatagoBatchDataset) and not dataset._convert:
            raise ValueError("dataset: got one with return_python_types=False: Samples cannot be handed from one process to another")
        self.dataset, self._state_is_wished = dataset, dataset._with_state
        dataset._with_state = True  # what a worker hands out tells how far it has come
        self._loader = DataLoader(dataset, batch_size=None, num_workers=workers, **options)

    def __iter__(self) -> Iterator[Any]:
        fit_loop = FitLoop.of(sys._getframe(1))
        self.dataset._follow(fit_loop)
        return self._read() if fit_loop is not None else iter(self._loader)

    def _read(self) -> Iterator[Any]:
        batches = iter(self._loader)  # starts the workers, which have what was loaded from now on
        self.dataset._states = None
        for batch in batches:
            self.dataset._keeper.add(batch["state"] if self._state_is_wished else batch.pop("state"))
            yield batch

    def __len__(self) -> int:
        """Batches of a pass on this rank, over all workers; TypeError where that is not known."""
        return len(self._loader)

    def state_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """As the dataset's: to the Trainer that of all ranks, as of the last batch that was trained on."""
        return self.dataset._state_for(FitLoop.of(sys._getframe(1)))

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """As the dataset's."""
        self.dataset._load(state, FitLoop.of(sys._getframe(1)))


class DataModule(pl.LightningDataModule):
    """The data of a Trainer: exact after `trainer.fit(ckpt_path=…)`, also where the number of ranks is another, if the source can.

    Args:
        train: the dataset that is trained on.
        val, test: datasets for evaluation, or None.
        workers: of a DataLoader for each; 0: the native threads of this process do all.
        options: of these DataLoaders.
    """

    def __init__(
        self, train: DatagoIterDataset, val: DatagoIterDataset | None = None, test: DatagoIterDataset | None = None,
        workers: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._train = Loader(train, workers, **options) if workers else train
        others = [[] if dataset is None else [dataset] for dataset in (val, test)]
        self._val, self._test = [
            [DataLoader(one, batch_size=None, num_workers=workers, **options) if workers else one for one in few] for few in others
        ]

    def train_dataloader(self) -> Any:
        return self._train

    def val_dataloader(self) -> Any:
        return self._val

    def test_dataloader(self) -> Any:
        return self._test
