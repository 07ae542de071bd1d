"""How pictures get their size: which keys of image_config say it, what goes with what, and which sizes may come out."""

from typing import TYPE_CHECKING

from datago.engine._buckets import aspect_buckets

if TYPE_CHECKING:
    from datago.settings import ImageSettings

INTERPOLATIONS = ("lanczos", "bicubic", "bilinear", "box", "nearest")
SIDES = ("center", "top_left", "top_right", "bottom_left", "bottom_right")
WAYS = ("crop_and_resize", "random_resized_crop", "resize", "center_crop", "pad")  # the last three go together


def check(image: "ImageSettings") -> None:
    """Raises ValueError where keys of the parsed image_config contradict each other."""
    chosen = [key for key in WAYS if getattr(image, key) not in (None, False)]
    if len(chosen) > 1 and chosen[0] in WAYS[:2]:
        raise ValueError(f"image_config.{chosen[1]}: wanted either that or {chosen[0]}, got both")
    if image.pad is None or not (image.resize or image.center_crop):
        return
    if image.center_crop is None and isinstance(image.resize, int):
        raise ValueError(
            f"image_config.resize: got {image.resize} with pad, wanted [width, height], or center_crop too: the longer side may be of any "
            "length, and pad wants a picture that fits inside; pad without resize makes it fit"
        )
    key = "resize" if image.center_crop is None else "center_crop"
    size, most = getattr(image, key), image.pad.size
    if size[0] > most[0] or size[1] > most[1]:
        raise ValueError(f"image_config.{key}: got {list(size)}, wanted at most {list(most)}, the size of pad")


def sizes(image: "ImageSettings") -> list[tuple[int, int]]:
    """A list of the (width, height), pixels, that pictures may get; [] where there is no telling, as each keeps its size or its shape."""
    if image.crop_and_resize:
        return aspect_buckets(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio, image.max_aspect_ratio)
    if image.random_resized_crop is not None:
        return [image.random_resized_crop.size]
    last = image.pad.size if image.pad is not None else image.center_crop or image.resize
    return [last] if isinstance(last, tuple) else []
