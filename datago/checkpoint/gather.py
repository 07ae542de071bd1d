"""One state for all ranks: each gives its own, and all get the list that `load_state_dict` takes anywhere."""

import sys
from typing import Any


def gather_state(state: dict[str, Any] | list[dict[str, Any]], group: Any = None) -> list[dict[str, Any]]:
    """The states of all ranks, which `load_state_dict` takes on any rank and, where the source can be dealt out anew, under any
    world size. JSON and torch.save can write the list; one rank's writing it is enough.

    Every rank of the group has to call it, at the same step: it is a collective of torch.distributed (all_gather_object), and waits for
    the others. It needs no torch.distributed where the world size is 1.

    Args:
        state: what this rank's `state_dict()` gave, or a batch's `state`, or a list of them.
        group: of torch.distributed, with all ranks that read parts of the data; None: the default group.

    Raises:
        ValueError: torch.distributed is not initialised, or the group has not all ranks of the state's world size. It is raised on all
            ranks of the group.
    """
    own = list(state) if isinstance(state, list | tuple) else [state]
    distributed = sys.modules.get("torch.distributed")
    of_ranks: list[list[dict[str, Any]]] = [own]
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        of_ranks = [[] for _ in range(distributed.get_world_size(group))]
        distributed.all_gather_object(of_ranks, own, group)
    # Ranks that hold parts of one model read the same samples; the first of them speaks for all.
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for one in (one for states in of_ranks for one in states):
        found.setdefault((one["rank"], one["worker"]), one)
    missing = sorted(set(range(max(one["world_size"] for one in found.values()))) - {rank for rank, _ in found})
    if missing:
        raise ValueError(
            f"gather_state: nobody gave the state of rank {', '.join(map(str, missing))}: every rank has to call gather_state, with "
            "torch.distributed initialised, in a group that has all ranks"
        )
    return [found[key] for key in sorted(found)]
