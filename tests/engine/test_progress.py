import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datago.engine._progress import Progress

spans = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def as_ranges(positions):
    ranges = []
    for position in sorted(positions):
        if ranges and ranges[-1][1] == position:
            ranges[-1][1] += 1
        else:
            ranges.append([position, position + 1])
    return ranges


@given(st.lists(spans, max_size=40), st.integers(0, 80))
def test_it_is_a_set_of_positions(added, asked):
    progress, positions = Progress(), set()
    for begin, end in added:
        progress.add(begin, end)
        positions |= set(range(begin, end))
        assert progress.ranges() == as_ranges(positions)
    assert progress.first_missing(asked) == next(i for i in range(asked, 200) if i not in positions)
    assert Progress(progress.ranges()).ranges() == progress.ranges()


@given(st.lists(spans, max_size=20), spans)
def test_remove_takes_whole_ranges(added, removed):
    progress = Progress(added)
    kept = [r for r in progress.ranges() if r[0] < removed[0] or r[1] > removed[1]]
    progress.remove(*removed)
    assert progress.ranges() == kept


@pytest.mark.timeout(30)
def test_threads_lose_no_position():
    progress = Progress()

    def mark(first):
        for position in range(first, 20_000, 8):
            progress.add(position, position + 1)

    threads = [threading.Thread(target=mark, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert progress.ranges() == [[0, 20_000]]


def test_positions_are_64_bits():
    progress = Progress([[2**62, 2**62 + 2], [0, 1]])
    assert progress.ranges() == [[0, 1], [2**62, 2**62 + 2]]
    with pytest.raises(OverflowError):
        progress.add(2**63, 2**63 + 1)
