"""The feeder: what a source yields goes to the pool, and where planned batches have lost a picture, others do."""

from typing import Any, cast

from datago.labels import labelled
from datago.settings import Label
from datago.sources.planned import Group, PlannedSource
from datago.sources.protocol import Source


def feed(pool: Any, source: Source, label: Label | None) -> None:
    """Runs `source.batches()` to its end, until the pool is stopped, or until something fails.

    Args:
        pool: a Pool.
        label: what gives an entry its class; None: they have none.
    """
    planned = False
    for batch in source.batches():
        if isinstance(batch, Group):
            planned = True
            if not (_fill_places(pool, source, label) and _submit(pool, source, label, batch)):
                return
        elif not pool.submit(*_labelled(source, label, list(batch))):
            return
    if planned:
        _fill_places(pool, source, label, at_end=True)


def _fill_places(pool: Any, source: Source, label: Label | None, at_end: bool = False) -> bool:
    """Waits until another batch may be submitted, `at_end` until all have left, and sees to their empty places meanwhile. False: the pool
    was stopped."""
    while (found := pool.empty_places(at_end)) is not None:
        group, places = found
        if not places:
            return True
        others = cast(PlannedSource, source).others(group, places)
        if not _submit(pool, source, label, others, places):
            return False
    return False


def _submit(pool: Any, source: Source, label: Label | None, group: Group, places: list[int] | None = None) -> bool:
    entries, classes = _labelled(source, label, list(group))
    width, height = group.size
    return bool(pool.submit_planned(group.number, width, height, entries, group.valid, places, classes))


def _labelled(source: Source, label: Label | None, entries: list[Any]) -> tuple[list[Any], list[int] | None]:
    return labelled(entries, label, source.base) if label else (entries, None)
