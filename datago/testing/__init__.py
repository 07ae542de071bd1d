"""Tests whether a source keeps the rules of datago/sources/protocol.py. All sources of datago pass them, and your own should too.

Derive a class from `Conformance` that makes configs of your source, and run it with pytest, or anything else that calls its test methods:

    class TestMySource(Conformance):
        size = 20

        def config(self):
            return {"source_type": "mine", "source_config": {"where": "/data/twenty-pictures"}}

The tests need no pytest, and use only what the protocol defines. They set `rank` and `world_size` in the source_config
that `config` gives, and `seed`, `epoch`, `ordered` and `uneven` beside it.
"""

from datago.testing.given import PATIENCE, Opened, position, within_patience
from datago.testing.kinds import KindTests
from datago.testing.order import OrderTests
from datago.testing.resuming import ResumeTests

__all__ = ["PATIENCE", "Conformance", "Opened", "position", "within_patience"]


class Conformance(KindTests, OrderTests, ResumeTests):
    """All tests of a source."""
