"""Tests of which samples a source yields, in which order and on which rank, and of how it stops."""

from functools import partial

from datago import config as configuration
from datago.net.cancel import Stopped
from datago.testing.given import Given, Item, Opened, position, within_patience


class OrderTests(Given):
    # ---- order ----

    def test_every_sample_comes_once(self) -> None:
        opened = Opened(self.config())
        entries = within_patience(opened.take)
        positions = [position(entry) for entry in entries]
        assert len({opened.name(entry) for entry in entries}) == len(entries) == self.size
        assert len(set(positions)) == self.size and min(positions) >= 0

    def test_the_order_is_that_of_the_seed(self) -> None:
        first, again = (within_patience(Opened(self.changed(**self.seeded())).take) for _ in range(2))
        opened = Opened(self.changed(**self.seeded()))
        assert [opened.name(entry) for entry in first] == [opened.name(entry) for entry in again]
        if self.one_order:
            assert [*map(position, first)] == [*map(position, again)]
            other = within_patience(Opened(self.changed(**self.seeded(), epoch=1)).names)
            assert sorted(other) == sorted(map(opened.name, first)) and other != [*map(opened.name, first)]

    # ---- ranks ----

    def test_ranks_and_workers_share_the_samples(self) -> None:
        whole = sorted(within_patience(Opened(self.config()).names))
        for world_size, workers in ((2, 1), (3, 1), (2, 2)):
            parts = [
                within_patience(Opened(config, None, worker, workers).names)
                for config in self.on_ranks(world_size, **self.seeded())
                for worker in range(workers)
            ]
            assert sorted(name for part in parts for name in part) == whole, f"world_size {world_size}, {workers} workers"

    def test_ranks_are_equal_where_that_is_promised(self) -> None:
        for uneven in ("drop", "pad"):
            try:
                configuration.parse(self.changed(uneven=uneven))
            except ValueError as error:
                assert "uneven" in str(error)
                continue
            counts: list[int] = []
            for config in self.on_ranks(5, uneven=uneven, seed=5):
                delivered = len(self._delivered(config))
                assert delivered == Opened(config).source.target
                counts.append(delivered)
            least, most = (0, self.size // 5) if uneven == "drop" else (-(-self.size // 5), self.size)
            assert len(set(counts)) == 1 and least <= counts[0] <= most, (uneven, counts)

    # ---- counts ----

    def test_counts_are_right_or_not_known(self) -> None:
        for config in [self.config(), *self.on_ranks(2, **self.seeded())]:
            opened = Opened(config)
            count = opened.source.count()
            assert count is None or count == len(within_patience(opened.take))
            assert opened.source.work_ahead >= 1 and opened.source.base >= 0 and isinstance(opened.source.skipped, dict)

    def test_the_client_delivers_what_there_is(self) -> None:
        assert len(set(self._delivered(self.config()))) == self.size

    # ---- failures ----

    def test_failures_are_counted_and_have_positions(self) -> None:
        broken = self.broken()
        if broken is None:
            return
        config, failed = broken
        found = self._delivered(config, failed)
        assert found and len(set(found)) == len(found)
        opened = Opened(config)
        entries = within_patience(opened.take)
        positions = [position(entry) for entry in entries]
        assert min(positions) >= 0 and len(set(positions)) == len(positions)
        opened.hand_out(entries)
        assert within_patience(lambda: Opened(config, opened.state()).take()) == [], "a failed sample comes again"

    # ---- stop ----

    def test_stop_ends_the_batches(self) -> None:
        for most in (0, 1):
            opened = Opened(self.config())
            found = within_patience(partial(opened.take, 1)) if most else []
            opened.source.stop()
            opened.source.stop()
            found += within_patience(opened.take)
            assert len(found) <= self.size

    def test_stop_before_it_is_open(self) -> None:
        source = self.kind.make(self._settings(0, 1))
        source.stop()

        def read() -> list[Item]:
            try:
                source.open()
                return [entry for batch in source.batches() for entry in batch]
            except Stopped:
                return []

        assert len(within_patience(read)) <= self.size
