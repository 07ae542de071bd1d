"""What a dataset says of where it is in its epoch, and how it goes on from there: in one process, under workers, on all ranks."""

import sys
from typing import Any

from datago.checkpoint.gather import gather_state
from datago.checkpoint.keeper import Keeper
from datago.checkpoint.state import checked
from datago.client import DatagoClient
from datago.errors import SourceError
from datago.order import ranks
from datago.trainers import FitLoop, accelerate_reader, refuse_second_split


class Resumable:
    """The part of DatagoIterDataset that has epochs and states."""

    _client: DatagoClient  # never started

    def _next(self) -> DatagoClient:
        raise NotImplementedError

    def _make_resumable(self, epoch: Any, with_state: bool) -> None:
        self._with_state = with_state
        self._epoch = epoch  # a list or tensor of one integer, that workers see
        self._states: list[dict[str, Any]] | None = None  # loaded, and no pass has begun with them yet
        self._running: DatagoClient | None = None  # the client of the pass under way, or of the last one
        self._keeper, self._kept = Keeper(), False  # what the loop is done with, and whether it says so
        self._fit_loop: FitLoop | None = None  # Lightning's, where it reads this pass
        self._length_fails = False  # of the epoch that it goes on with
        self._lightning_epoch = self._epoch_now()  # set for it last: who sets another one sees to the epochs
        self._tensors_only = False  # accelerate puts the batches together and sends parts of them to other processes

    def _epoch_now(self) -> int:
        epoch = self._epoch  # item() raises MemoryError where it must, an index something of torch's own
        return epoch[0] if isinstance(epoch, list) else int(epoch.item())

    def _follow(self, fit_loop: FitLoop | None) -> None:
        """A pass of Lightning's training begins, or of nobody's that is known (None): each is another epoch, but what was loaded."""
        self._fit_loop = fit_loop
        self._length_fails = self._length_fails and self._states is not None
        if fit_loop is not None and self._states is None and self._epoch_now() == self._lightning_epoch:
            self._lightning_epoch = self._client.config.epoch + fit_loop.epochs()
            self.set_epoch(self._lightning_epoch)

    def _check_length(self, fit_loop: FitLoop | None, workers: int, batch_size: int) -> None:
        """Raises TypeError where Lightning's loop would take a length for what it is not."""
        if fit_loop is None:
            return
        self._length_fails = self._length_fails or not fit_loop.length_holds(self._world_size(), workers, batch_size)
        if self._length_fails:
            raise TypeError("the number of batches is not known: this epoch was begun with another number of ranks, or with other batches")

    def _world_size(self) -> int:
        source = self._client.config.source_config
        return ranks.resolve(source.rank, source.world_size)[1]

    def _stated(self, client: DatagoClient, outcome: Any) -> Any:
        """A sample or batch, with its state where that is wished; Lightning's loop asks later for the states of what it was given."""
        self._keep(self._state_of(client, outcome, self._fit_loop is not None))
        return outcome

    def _state_of(self, client: DatagoClient, outcome: Any, wanted: bool) -> dict[str, Any] | None:
        """The state right after an outcome, which gets it where that is wished. None where it is not `wanted` besides, or there is none."""
        try:
            state = client.state_dict() if self._with_state or wanted else None
        except SourceError:  # this source has no states: it says so to whoever saves a checkpoint
            if self._with_state:
                raise
            return None
        if self._with_state:
            outcome["state"] = state
        return state

    def _keep(self, state: dict[str, Any] | None) -> None:
        """A batch or sample with that state is handed out."""
        if state is None:
            self._fit_loop = None
        elif self._fit_loop is not None:
            self._keeper.add(state)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that epoch's, in every worker. Raises ValueError, also where accelerate is about to split what ranks have
        split, or to begin another epoch than the one whose state was loaded."""
        if reader := accelerate_reader(sys._getframe(1)):
            config = self._client.config
            refuse_second_split(reader, self._world_size(), config.ordered and config.seed is not None)
            if self._states is not None and self._states[0]["epoch"] != epoch:
                raise ValueError(
                    f"epoch: accelerate's loader begins {epoch}, the state is of {self._states[0]['epoch']}: call its set_epoch"
                )
            self._tensors_only = reader == "DataLoaderDispatcher"
        self._client.set_epoch(epoch)
        if epoch != self._epoch_now():
            self._keeper.begin(None)
            self._epoch[0] = epoch

    def update(self, batch: dict[str, Any]) -> None:
        """Says that the loop is done with a batch (or a sample), one that `with_state` gave a state. From then on `state_dict` says what
        the loop is done with, and not what this process was given: exact, however far a prefetcher or the workers of a DataLoader
        have read ahead. Raises ValueError: it has no `state`."""
        states = batch.get("state") if isinstance(batch, dict) else None
        states = states if isinstance(states, list | tuple) else [states]  # of samples that somebody made one batch of
        if not states or not all(isinstance(state, dict) and isinstance(state.get("workers"), int) for state in states):
            raise ValueError(f"update: wanted a batch with the state that with_state=True gives it, got {batch!r:.80}")
        for state in states:
            self._keeper.add(state)
        self._keeper.settle(0)
        self._states, self._kept = None, True  # what was loaded has begun, in the workers

    def state_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Where this process is in its epoch; see DatagoClient.state_dict. Where `update` is called: where the loop is, as a list with one
        state for each worker if a DataLoader has some. To Lightning, which asks for it on all ranks and stores one, that of all
        ranks (`datago.gather_state`), as of the last batch that was trained on."""
        return self._state_for(FitLoop.of(sys._getframe(1)))

    def _state_for(self, fit_loop: FitLoop | None) -> dict[str, Any] | list[dict[str, Any]]:
        without_states = self._running is not None and self._fit_loop is None  # the source: it says so
        if fit_loop is None or without_states:
            return self._kept_states() if self._kept else self._state_here()
        self._keeper.settle(fit_loop.ahead())
        states = self._kept_states()
        following = fit_loop.next_epoch()
        if following is not None:
            epoch = self._client.config.epoch + following if self._epoch_now() == self._lightning_epoch else self._epoch_now()
            states = [self._beginning(worker, self._keeper.workers, None, epoch) for worker in range(self._keeper.workers)]
        states = states if isinstance(states, list) else [states]
        return gather_state(states) if states[0]["world_size"] > 1 else states

    def _state_here(self) -> dict[str, Any]:
        running = self._running
        client = running if running is not None and not running._foreign() else self._next()
        client.set_epoch(self._epoch_now())
        return client.state_dict()

    def _kept_states(self) -> dict[str, Any] | list[dict[str, Any]]:
        states = self._keeper.states(self._beginning)
        return states if len(states) > 1 else states[0]

    def _beginning(self, worker: int, workers: int, base: list[dict[str, Any]] | None, epoch: int | None = None) -> dict[str, Any]:
        client = self._client.part(worker, workers)
        if base is not None:
            client.load_state_dict(base)
        client.set_epoch(self._epoch_now() if epoch is None else epoch)
        return client.state_dict()

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """The next pass gives exactly what was left; see DatagoClient.load_state_dict.

        Whether the state fits this rank and worker, it says (ValueError) when that pass begins.
        """
        self._load(state, FitLoop.of(sys._getframe(1)))

    def _load(self, state: dict[str, Any] | list[dict[str, Any]], fit_loop: FitLoop | None) -> None:
        found = checked(state, self._client.config)
        self.set_epoch(found[0]["epoch"])
        self._states = found
        self._keeper.begin(found)
        if fit_loop is not None:
            self._lightning_epoch = found[0]["epoch"]
