import pickle

import pytest
from conftest import config

from datago import DatagoIterDataset


def test_every_iteration_is_a_full_pass(folder):
    dataset = DatagoIterDataset(config(folder))
    first, second = list(dataset), list(dataset)
    assert len(first) == len(second) == 20 and {s["id"] for s in first} == {s["id"] for s in second}
    assert first[0]["image"].mode == "RGB"
    for i, _ in enumerate(dataset):
        if i == 3:
            break
    assert len(list(dataset)) == 20


def test_raw_samples_and_limit(folder):
    dataset = DatagoIterDataset(config(folder, limit=7), return_python_types=False)
    assert len(dataset) == 7 == len(list(dataset))
    assert next(iter(dataset)).image.channels == 3
    with pytest.raises(TypeError, match="not known: the config has no limit"):
        len(DatagoIterDataset(config(folder)))


def test_it_can_be_pickled_before_and_after(folder):
    dataset = DatagoIterDataset(config(folder))
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == 20
    iterator = iter(dataset)
    next(iterator)
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == 20


def test_a_wrong_config_is_refused_at_once(folder):
    with pytest.raises(ValueError, match="limit: got 0"):
        DatagoIterDataset(config(folder, limit=0))
