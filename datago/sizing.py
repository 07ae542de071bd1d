"""The buckets of pictures that were not read yet: by sizes that the user gives, that were kept, or that stand in their headers."""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from datago import environment, geometry
from datago.errors import SourceValueError
from datago.settings import ImageSettings

if TYPE_CHECKING:
    from numpy import int32
    from numpy.typing import ArrayLike, NDArray

    from datago.engine._sample import Failure

Sizes = Mapping[str, Sequence[int]] | Callable[[str], Sequence[int] | None] | str | os.PathLike[str]

log = logging.getLogger("datago.sizes")

PERIOD_S = 5  # between two lines about how far it is


class Sizing:
    """Gives pictures their buckets; see Planning.buckets.

    Args:
        image, max_file_bytes: of the config.
        given: sizes of upright pictures, (width, height) in pixels: a dict, or the path of a JSON file with one, by paths below the root; a
            function of such a path; or an array of shape (n, 2) in the order of the listing. Of what it does not have, or has as None or
            zeros, headers are read.
        folder: where sizes that were read are kept.
    """

    def __init__(self, image: ImageSettings, max_file_bytes: int, given: "Sizes | ArrayLike | None", folder: str) -> None:
        self._image, self._max_file_bytes, self._given, self._folder = image, max_file_bytes, given, folder

    def __call__(
        self, paths: list[bytes], base: int, stopped: Callable[[], bool]
    ) -> "tuple[NDArray[int32], list[tuple[int, Failure]]] | None":  # fmt: skip
        import numpy

        from datago.checkpoint.sizes import sizes_of
        from datago.engine._sizes import bucket_numbers

        image = self._image
        if len(geometry.sizes(image)) == 1:
            return numpy.zeros(len(paths), numpy.int32), []
        sizes = self._known(paths, base)
        unknown = numpy.flatnonzero((sizes <= 0).any(axis=1))
        failures: list[tuple[int, Failure]] = []
        if len(unknown):
            found = sizes_of(
                [paths[number] for number in unknown], environment.worker_count(1024), self._folder, max_file_bytes=self._max_file_bytes,
                orient=image.apply_exif_orientation, progress=_progress(len(unknown)), stop=SimpleNamespace(is_set=stopped),
            )  # fmt: skip
            if found is None:
                return None
            sizes[unknown] = found[0]
            failures = [(int(unknown[number]), failure) for number, failure in found[1]]
        buckets = bucket_numbers(
            sizes, image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio, image.max_aspect_ratio
        )  # fmt: skip
        return buckets, failures

    def _known(self, paths: list[bytes], base: int) -> "NDArray[int32]":
        """The sizes that were given: shape (n, 2), zeros where there is none."""
        import numpy

        given: Any = self._given
        if given is None:
            return numpy.zeros((len(paths), 2), numpy.int32)
        try:
            if isinstance(given, str | os.PathLike):
                with open(given, encoding="utf-8", errors="surrogateescape") as file:
                    given = json.load(file)
            if isinstance(given, Mapping):
                given = given.get
            if callable(given):
                given = [given(os.fsdecode(path[base:])) or (0, 0) for path in paths]
            sizes = numpy.array(given)
            if sizes.shape != (len(paths), 2) or sizes.dtype.kind not in "iu":
                raise ValueError(f"got an array of {sizes.dtype} of shape {sizes.shape}, wanted integers of shape ({len(paths)}, 2)")
        except (OSError, ValueError, TypeError) as error:
            raise SourceValueError(f"sizes: {error}") from None
        found: NDArray[int32] = numpy.clip(sizes, 0, 2**31 - 1).astype(numpy.int32)
        return found


def _progress(count: int) -> Callable[[int], None]:
    then = begin = time.monotonic()

    def report(done: int) -> None:
        nonlocal then
        now = time.monotonic()
        if done == count or now - then > PERIOD_S:
            then = now
            log.info("sizes of pictures: %d of %d read, %.1f s", done, count, now - begin)

    return report
