"""Whether a source keeps what datago/sources/protocol.py promises: tests that every source of ours passes, and that yours should.

Derive from `Conformance`, say how a config of your source is made, and let pytest (or anything else that calls the methods test_…) run it:

    class TestMySource(Conformance):
        size = 20

        def config(self):
            return {"source_type": "mine", "source_config": {"where": "/data/twenty-pictures"}}

The tests need no pytest, and nothing of your source but what the protocol says. They set `rank` and `world_size` in the source_config
that `config` gives, and `seed`, `epoch`, `ordered` and `uneven` beside it.
"""

from datago.testing.given import PATIENCE, Opened, position, within_patience
from datago.testing.kinds import KindTests
from datago.testing.order import OrderTests
from datago.testing.resuming import ResumeTests

__all__ = ["PATIENCE", "Conformance", "Opened", "position", "within_patience"]


class Conformance(KindTests, OrderTests, ResumeTests):
    """All tests of a source."""
