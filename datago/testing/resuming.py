"""Tests of states, and of passes that go on from them."""

import random
from collections.abc import Callable
from typing import Any

from datago.errors import DatagoError
from datago.testing.given import Given, Opened, within_patience


class ResumeTests(Given):
    def test_a_pass_goes_on_where_it_was(self):
        """Everything up to some point was handed out, for points at random; some of what comes behind it was read."""
        rng = random.Random(7)
        for top in (self.seeded(), {}):
            whole = within_patience(Opened(self.changed(**top)).names)
            for _ in range(6):
                opened = Opened(self.changed(**top))
                entries = within_patience(lambda opened=opened: opened.take(rng.randrange(1, self.size + 1)))
                done = entries[: rng.randrange(len(entries) + 1)]
                self._check_rest(opened, done, self.changed(**top), whole)

    def test_samples_may_be_handed_out_in_any_order(self):
        rng = random.Random(8)
        whole = within_patience(Opened(self.config()).names)
        for _ in range(6):
            opened = Opened(self.config())
            entries = within_patience(lambda opened=opened: opened.take(rng.randrange(1, self.size + 1)))
            self._check_rest(opened, rng.sample(entries, rng.randrange(len(entries) + 1)), self.config(), whole)

    def test_a_resumed_pass_can_be_resumed(self):
        config, state, names = self.changed(**self.seeded()), None, []
        for _ in range(3):
            opened = Opened(config, state)
            done = within_patience(lambda opened=opened: opened.take(2))[:3]
            names += map(opened.name, done)
            opened.hand_out(done)
            state = opened.state()
            opened.source.stop()
        names += within_patience(Opened(config, state).names)
        assert names == within_patience(Opened(config).names)

    def _check_rest(self, opened, done, config, whole):
        opened.hand_out(done)
        state = opened.state()
        opened.source.stop()
        handed = [opened.name(entry) for entry in done]
        rest = within_patience(Opened(config, state).names)
        assert sorted(handed + rest) == sorted(whole)
        if config.get("ordered"):
            assert handed + rest == whole

    def test_a_state_has_the_form_that_it_should(self):
        opened = Opened(self.config())
        opened.hand_out(within_patience(lambda: opened.take(3))[:3])
        state = opened.state()
        opened.source.stop()
        assert set(state["source"]) == set(self.kind.state)
        for key in self.kind.state:
            damaged = {**state, "source": {name: value for name, value in state["source"].items() if name != key}}
            assert f"source.{key}: missing" in self._refusal(lambda damaged=damaged: Opened(self.config(), damaged))

    def test_another_number_of_ranks(self):
        """Goes on from all states where the source can, and is refused where it cannot."""
        states, handed = [], []
        for config in self.on_ranks(2, **self.seeded()):
            opened = Opened(config)
            done = within_patience(lambda opened=opened: opened.take(2))[:2]
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
