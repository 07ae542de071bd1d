from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy

from datago.engine._sample import Failure

class _Flag(Protocol):
    def is_set(self) -> bool: ...

def read_sizes(
    paths: Sequence[bytes],
    threads: int,
    max_file_bytes: int = ...,
    orient: bool = True,
    progress: Callable[[int], Any] | None = None,
    stop: _Flag | None = None,
) -> tuple[numpy.ndarray, list[tuple[int, Failure]]] | None: ...
def bucket_numbers(
    sizes: numpy.ndarray, default_image_size: int, downsampling_ratio: int, min_aspect_ratio: float, max_aspect_ratio: float
) -> numpy.ndarray: ...
