"""datago: decoded, cropped, bucketed images for training vision models, on all cores, outside the GIL."""

from datago._buckets import aspect_buckets
from datago._sample import Failure, ImagePayload, LatentPayload, Sample
from datago.client import DatagoClient
from datago.dataset import DatagoIterDataset
from datago.errors import DatagoError, SampleError, SourceError
from datago.log import initialize_logging
from datago.passes import live_cleanup_threads

__all__ = [
    "DatagoClient",
    "DatagoError",
    "DatagoIterDataset",
    "Failure",
    "ImagePayload",
    "LatentPayload",
    "Sample",
    "SampleError",
    "SourceError",
    "aspect_buckets",
    "initialize_logging",
    "live_cleanup_threads",
]
