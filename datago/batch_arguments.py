"""The arguments of DatagoBatchDataset: what each may be, and what it comes to."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

from datago import geometry
from datago.settings import Settings
from datago.sources import source_type

LARGEST = 2**20  # pictures in a batch
DTYPES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}  # bytes of a value


def check(name: str, value: object, good: object, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name}: got {value!r}, wanted {wanted}")


def check_images(settings: Settings[Any]) -> None:
    """Raises ValueError where a config gives no images, or none of which batches can be made."""
    if not geometry.sizes(settings.image_config):
        raise ValueError(
            "image_config: a batch wants crop_and_resize, random_resized_crop, resize: [width, height], center_crop or pad: its "
            "pictures have one size"
        )
    if settings.image_config.pre_encode_images:
        raise ValueError("image_config.pre_encode_images: got true, wanted false: a batch is made of pixels")
    source_type(settings.source_type).check_images(settings)


def share(settings: Settings[Any], values: int, most_waiting: int | None) -> tuple[int, int]:
    """How many batches half of the memory_limit holds, and bytes of the largest; 0, 0 without a limit. `values`: bytes of one pixel in
    all pictures of a batch. Raises ValueError where all that may be open, and one that is handed out, do not fit in there."""
    limit, sizes = settings.memory_limit, geometry.sizes(settings.image_config)
    if limit is None:
        return 0, 0
    largest = values * max(width * height for width, height in sizes)
    least = 1 + min(len(sizes), most_waiting or len(sizes))
    if limit // 2 < least * largest:
        raise ValueError(
            f"memory_limit: got {limit}, wanted at least {2 * least * largest}: half of it is for batches, of which there may be {least} "
            f"of {largest} bytes, an open one for each of {least - 1} sizes and one that is handed out; less takes a smaller batch_size, "
            "fewer buckets or most_waiting"
        )
    return limit // 2 // largest, largest


def whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def each(name: str, value: Any, channels: int, default: float) -> tuple[float, ...]:
    """One number for each channel."""
    value = default if value is None else value
    values = [value] * channels if isinstance(value, Real) else list(value) if isinstance(value, Iterable) else []
    good = len(values) == channels and all(map(_finite, values))
    check(name, value, good, f"a finite number, or {channels} of them")
    return tuple(float(one) for one in values)


def other_scale(means: tuple[float, ...], deviations: tuple[float, ...]) -> str:
    """What is wrong with a mean or std that is none of pictures whose values are 0 to 1; "" where they may be."""
    for name, values, good, wanted in (
        ("mean", means, all(0 <= value <= 1 for value in means), "0 to 1"),
        ("std", deviations, all(0 < value <= 1 for value in deviations), "above 0 to 1"),
    ):
        if not good:
            return f"{name}: got {values}, wanted {wanted}: pictures are scaled to [0, 1]; divide by 255 what is meant for 0 to 255"
    return ""


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
