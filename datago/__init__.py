"""datago: decoded, cropped, bucketed images for training vision models, on all cores, outside the GIL.

    client = DatagoClient({"source_type": "file", "source_config": {"root_path": "/data/pictures"}})
    for sample in client:
        array = sample.image.to_numpy_array()

DatagoClient gives samples one by one, DatagoIterDataset the same to a torch DataLoader, DatagoBatchDataset batches of tensors. The config's
keys are in docs/config.md. All errors are DatagoErrors (SourceError: no more can be had; SampleError: one sample failed), but for a
wrong config, which is a ValueError.
"""

from typing import TYPE_CHECKING, Any

from datago.agree import agreed
from datago.checkpoint.gather import gather_state
from datago.client import DatagoClient
from datago.engine._buckets import aspect_buckets
from datago.engine._payload import ImagePayload, LatentPayload
from datago.engine._sample import Failure, Sample
from datago.errors import DatagoError, SampleError, SourceError
from datago.log import initialize_logging
from datago.run import live_cleanup_threads
from datago.typed import Batch, SampleDict

__version__: str  # of the installed package; looked up when it is asked for

if TYPE_CHECKING:
    from datago.batches import DatagoBatchDataset
    from datago.dataset import DatagoIterDataset

__all__ = [
    "Batch",
    "DatagoBatchDataset",
    "DatagoClient",
    "DatagoError",
    "DatagoIterDataset",
    "Failure",
    "ImagePayload",
    "LatentPayload",
    "Sample",
    "SampleDict",
    "SampleError",
    "SourceError",
    "agreed",
    "aspect_buckets",
    "gather_state",
    "initialize_logging",
    "live_cleanup_threads",
]


# They are torch's where torch is installed, and that takes seconds to import.
_LAZY = {"DatagoBatchDataset": "datago.batches", "DatagoIterDataset": "datago.dataset"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from datago.versions import own

        return own()
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
