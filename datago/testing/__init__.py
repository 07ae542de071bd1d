"""Whether a source keeps what datago/sources/protocol.py promises: tests that every source of ours passes, and that yours should.

Derive from `Conformance`, say how a config of your source is made, and let pytest (or anything else that calls the methods test_…) run it:

    class TestMySource(Conformance):
        size = 20

        def config(self):
            return {"source_type": "mine", "source_config": {"where": "/data/twenty-pictures"}}

The tests use nothing of pytest's, and nothing but public functions of your source. Each sets `rank`, `world_size`, `seed`, `epoch`,
`ordered`, `uneven` and `random_sampling` in what `config` gives.
"""

from datago.testing.given import PATIENCE, Opened, position, within_patience
from datago.testing.kinds import KindTests
from datago.testing.order import OrderTests
from datago.testing.resuming import ResumeTests

__all__ = ["PATIENCE", "Conformance", "Opened", "position", "within_patience"]


class Conformance(KindTests, OrderTests, ResumeTests):
    """All tests of a source."""
