"""Finds this process's rank and the world size if the config says "auto"."""

import os
import sys
from typing import Literal

# (rank, world size), in the order in which they are tried
VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def resolve(rank: int | Literal["auto"], world_size: int | Literal["auto"]) -> tuple[int, int]:
    """(rank, world_size) as integers; either argument may be "auto".

    "auto" means the values of torch.distributed if it is initialised, otherwise those of the environment variables that launchers set,
    otherwise rank 0 of 1. Raises ValueError if the variables are not numbers, or if some of the needed ones are missing.
    """
    if isinstance(rank, int) and isinstance(world_size, int):
        return rank, world_size
    found = _distributed() or _environment() or (0, 1)
    rank, world_size = (there if given == "auto" else given for given, there in zip((rank, world_size), found, strict=True))
    if not 0 <= rank < world_size:
        raise ValueError(f"source_config.rank: got {rank} (auto), wanted less than world_size, which is {world_size}")
    return rank, world_size


def _distributed() -> tuple[int, int] | None:
    """The rank and world size of torch.distributed, if the program has imported and initialised it; None otherwise."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


def _environment() -> tuple[int, int] | None:
    for rank, world_size in VARIABLES:
        if rank in os.environ and world_size in os.environ:
            return _number(rank), _number(world_size)
    if "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ:  # Lightning sets these.
        return _on_node(), _number("WORLD_SIZE")
    if "WORLD_SIZE" in os.environ and _number("WORLD_SIZE") > 1:
        raise ValueError('source_config.rank: "auto" finds WORLD_SIZE in the environment, but neither RANK nor LOCAL_RANK')
    return None


def _on_node() -> int:
    node = _number("NODE_RANK") if "NODE_RANK" in os.environ else 0
    if node and "LOCAL_WORLD_SIZE" not in os.environ:
        raise ValueError(
            f'source_config.rank: "auto" finds node {node} by NODE_RANK, but not how many ranks a node has: initialise '
            "torch.distributed first, or set RANK"
        )
    return node * (_number("LOCAL_WORLD_SIZE") if node else 0) + _number("LOCAL_RANK")


def _number(name: str) -> int:
    text = os.environ[name]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'source_config.rank: "auto" finds {name}={text!r} in the environment, wanted a number')
    return int(text)
