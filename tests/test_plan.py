import numpy
import pytest

from datago import plan


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_has_every_index_once(count):
    assert sorted(plan.permutation(count, 5)) == list(range(count))


def test_the_same_seed_gives_the_same_order_for_ever():
    assert plan.permutation(12, 2026).tolist() == GOLDEN
    assert plan.permutation(12, 2027).tolist() != GOLDEN


GOLDEN = [11, 2, 6, 9, 1, 7, 10, 0, 4, 8, 5, 3]


def test_positions_are_uniform():
    """Where 0 lands over 4000 seeds: each of 8 places about 500 times; chi-squared with 7 degrees of freedom, 1 in 10,000."""
    places = numpy.bincount([plan.permutation(8, seed).tolist().index(0) for seed in range(4000)], minlength=8)
    assert ((places - 500) ** 2 / 500).sum() < 29.9
