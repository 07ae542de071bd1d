import logging
import re

import pytest
from conftest import config, jpeg
from database import until

from datago import DatagoClient


def values(text):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    found = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge")
        found |= {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    return found


def test_openmetrics(folder):
    (folder / "d0" / "000.jpg").write_bytes(b"")
    (folder / "d1" / ".hidden.jpg").write_bytes(b"")
    client = DatagoClient(config(folder, memory_limit=2**30))
    before = values(client.metrics())
    assert before["datago_samples_total", ("outcome", "delivered")] == 0
    assert sum(1 for _ in client) == 19
    text = client.metrics(split='a "b"\n\\c')
    assert text.endswith("\n# EOF\n")
    found, split = values(text), ("split", 'a "b"\n\\c')
    assert found["datago_samples_total", ("outcome", "delivered"), split] == 19
    assert found["datago_samples_total", ("outcome", "failed"), split] == 1
    assert found["datago_failures_total", ("reason", "empty"), split] == 1
    assert found["datago_skips_total", ("reason", "hidden"), split] == 1
    assert found["datago_ring_items_total", ("ring", "work"), split] == 20
    assert found["datago_in_flight_samples", split] == found["datago_in_flight_bytes", split] == 0
    assert ("datago_ring_waits_total", ("ring", "ready"), ("side", "push"), split) in found
    assert all(name.startswith("datago_") for name, *_ in found)


@pytest.mark.parametrize("label", ["a-b", "1a", "", "__a", "ring", "é"])
def test_labels_that_would_spoil_the_text(folder, label):
    """Whoever reads it would refuse the whole of it, or two labels would be one."""
    with pytest.raises(ValueError, match="metrics: got the label"):
        DatagoClient(config(folder)).metrics(**{label: "x"})


def test_a_line_every_period(tmp_path, caplog):
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg())
    caplog.set_level(logging.INFO, "datago.client")
    client = DatagoClient(config(tmp_path, log_period=0.1))
    assert client.get_sample(timeout=20)
    lines = lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]  # noqa: E731
    until(lambda: len(lines()) >= 3)
    assert sum(1 for _ in client) == 9
    pattern = r"\d+\.\d images/s; seen \d+, delivered \d+, failed 0, skipped 0, in flight \d+; (source|decoding|training loop) is slow: .*"
    until(lambda: "seen 10, delivered 10, failed 0, skipped 0, in flight 0;" in lines()[-1])
    assert all(re.fullmatch(pattern, line) for line in lines()), lines()


def test_no_line_without_a_period(folder, caplog):
    caplog.set_level(logging.INFO)
    assert sum(1 for _ in DatagoClient(config(folder))) == 20
    assert caplog.records == []
