"""Tests of states, and of passes that are resumed from them."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from datago.errors import DatagoError
from datago.testing.given import Given, Item, Opened, within_patience


class ResumeTests(Given):
    def test_a_pass_goes_on_where_it_was(self) -> None:
        """A random number of entries was handed out, and some of the entries after these were read."""
        rng = random.Random(7)
        for top in (self.seeded(), {}):
            whole = within_patience(Opened(self.changed(**top)).names)
            for _ in range(6):
                opened = Opened(self.changed(**top))
                entries = within_patience(partial(opened.take, rng.randrange(1, self.size + 1)))
                done = entries[: rng.randrange(len(entries) + 1)]
                self._check_rest(opened, done, self.changed(**top), whole)

    def test_samples_may_be_handed_out_in_any_order(self) -> None:
        rng = random.Random(8)
        whole = within_patience(Opened(self.config()).names)
        for _ in range(6):
            opened = Opened(self.config())
            entries = within_patience(partial(opened.take, rng.randrange(1, self.size + 1)))
            self._check_rest(opened, rng.sample(entries, rng.randrange(len(entries) + 1)), self.config(), whole)

    def test_a_resumed_pass_can_be_resumed(self) -> None:
        config = self.changed(**self.seeded())
        state: dict[str, Any] | None = None
        names: list[Any] = []
        for _ in range(3):
            opened = Opened(config, state)
            done = within_patience(partial(opened.take, 2))[:3]
            names += map(opened.name, done)
            opened.hand_out(done)
            state = opened.state()
            opened.source.stop()
        names += within_patience(Opened(config, state).names)
        assert names == within_patience(Opened(config).names)

    def _check_rest(self, opened: Opened, done: list[Item], config: dict[str, Any], whole: list[Any]) -> None:
        opened.hand_out(done)
        state = opened.state()
        opened.source.stop()
        handed = [opened.name(entry) for entry in done]
        rest = within_patience(Opened(config, state).names)
        assert sorted(handed + rest) == sorted(whole)
        if config.get("ordered"):
            assert handed + rest == whole

    def test_a_state_has_the_form_that_it_should(self) -> None:
        opened = Opened(self.config())
        opened.hand_out(within_patience(lambda: opened.take(3))[:3])
        state = opened.state()
        opened.source.stop()
        wanted = {key for key in self.kind.state if not key.endswith("?")}
        assert wanted <= set(state["source"]) <= {key.removesuffix("?") for key in self.kind.state}
        for key in wanted:
            damaged = {**state, "source": {name: value for name, value in state["source"].items() if name != key}}
            assert f"source.{key}: missing" in self._refusal(partial(Opened, self.config(), damaged))

    def test_another_number_of_ranks(self) -> None:
        """A pass is resumed with another world_size if the source can do that, and is refused if it cannot."""
        states: list[dict[str, Any]] = []
        handed: list[Any] = []
        for config in self.on_ranks(2, **self.seeded()):
            opened = Opened(config)
            done = within_patience(partial(opened.take, 2))[:2]
            opened.hand_out(done)
            handed += map(opened.name, done)
            states.append(opened.state())
            opened.source.stop()
        if not self.kind.can_restripe:
            assert "world_size" in self._refusal(lambda: Opened(self.changed(**self.seeded()), states))
            return
        for world_size in (1, 3):
            rest = [name for config in self.on_ranks(world_size, **self.seeded()) for name in within_patience(Opened(config, states).names)]
            assert sorted(handed + rest) == sorted(within_patience(Opened(self.config()).names))

    def _refusal(self, work: Callable[[], Any]) -> str:
        try:
            work()
        except (ValueError, DatagoError) as error:
            return str(error)
        raise AssertionError("it was not refused")
