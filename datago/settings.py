"""What a checked config is: frozen dataclasses, whose fields declare its keys (see keys.py). config.py makes them, nobody changes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal

from datago import geometry, sources
from datago.checks import (
    BOOL,
    COLOUR,
    FAILURES,
    MAX_INT,
    NATURAL,
    OBJECT,
    PERIOD,
    POLICY,
    PROBABILITY,
    UNEVEN,
    Check,
    choice,
    either,
    integer,
    is_range,
    number,
    one_of,
    pair,
)
from datago.engine._sample import Entry, Failure
from datago.keys import key
from datago.sources.settings import S

if TYPE_CHECKING:
    from datago.sources.planned import Planning

SIDE = integer(1, 2**16)
SIZE = either("pixels, or [width, height]", SIDE, pair(SIDE, ""))
SIZED = either("pixels, [width, height], or an object", SIZE, OBJECT)
FILTER = choice(*geometry.INTERPOLATIONS)
Filter = Literal["lanczos", "bicubic", "bilinear", "box", "nearest"]
SCALE = Check(is_range(1), "[least, most] share of the area, above 0, at most 1", pair(number(0, 1), "").schema)
RATIO = Check(is_range(), "[least, most] width / height, above 0", pair(number(0), "").schema)


@dataclass(frozen=True, kw_only=True)
class ResizedCrop:
    """The keys of `image_config.random_resized_crop`."""

    size: tuple[int, int] = key(SIZE, doc="The side, or [width, height], of what comes out.")
    scale: tuple[float, float] = key(SCALE, (0.08, 1.0), "The least and the most that the box has of the picture's area.")
    ratio: tuple[float, float] = key(RATIO, (3 / 4, 4 / 3), "The least and the most width / height of the box.", "[3/4, 4/3]")


@dataclass(frozen=True, kw_only=True)
class Pad:
    """The keys of `image_config.pad`."""

    size: tuple[int, int] = key(SIZE, doc="The side, or [width, height], of the canvas.")
    fill: tuple[int, int, int] = key(COLOUR, (0,) * 3, "A grey level or [red, green, blue], opaque; masks have 0.", "0")
    where: Literal["center", "top_left", "top_right", "bottom_left", "bottom_right"] = key(
        choice(*geometry.SIDES), "center",
        'Where the canvas shows: `"center"`, on both sides alike, `"bottom_right"`, `"bottom_left"`, `"top_right"` or `"top_left"`.',
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """The keys of an image_config."""

    crop_and_resize: bool = key(BOOL, False, "Bring every picture to a bucket.")
    default_image_size: int = key(
        integer(0, 2**16), 0, "The side of the square bucket; the others have about its area. Wanted with `crop_and_resize`."
    )
    downsampling_ratio: int = key(integer(0, 2**16), 0, "Every side is a multiple of it. Wanted with `crop_and_resize`.")
    min_aspect_ratio: float = key(
        number(0), 0, "The least width / height of a bucket; rounding takes the outermost a little past it. Wanted with `crop_and_resize`."
    )
    max_aspect_ratio: float = key(
        number(0), 0, "The most width / height of a bucket; rounding takes the outermost a little past it. Wanted with `crop_and_resize`."
    )
    resize: int | tuple[int, int] | None = key(
        SIZE, None, "The shorter side in pixels, the longer one in proportion; or `[width, height]`."
    )
    center_crop: tuple[int, int] | None = key(
        SIZE, None, "A side, or `[width, height]`: the middle of the picture, with zeros around it where it is smaller."
    )
    pad: Pad | None = key(SIZED, None, "A side, `[width, height]`, or an object with the keys below: a canvas of that size.", inside=Pad)
    interpolation: Filter = key(
        FILTER, "lanczos",
        '`"lanczos"`, `"bicubic"`, `"bilinear"`, `"box"` or `"nearest"`: Pillow\'s filters, for whatever resizes; all but the last widen '
        "when a picture shrinks.",
    )  # fmt: skip
    resize_mode: Literal["fast", "exact"] = key(
        choice("fast", "exact"), "fast", '`"fast"`, or `"exact"`: the pixels of Pillow, bit for bit.'
    )
    random_crop: bool = key(BOOL, False, "The crop lies anywhere in its bucket's slack, not in the middle.")
    random_resized_crop: ResizedCrop | None = key(
        SIZED, None,
        "A side, `[width, height]`, or an object with the keys below: a box drawn as torchvision does, of which only the region needed is "
        "decoded; instead of `crop_and_resize`.",
        inside=ResizedCrop,
    )  # fmt: skip
    horizontal_flip: float = key(PROBABILITY, 0, "How probably a sample is mirrored.")
    mask_resample: Filter = key(
        FILTER, "lanczos", 'The filter for masks: `"nearest"` for those that are labels, or another of `interpolation`.'
    )
    image_to_rgb8: bool = key(BOOL, False, "Grey, alpha and 16 bits become 8-bit RGB, alpha over `background`.")
    background: tuple[int, int, int] = key(COLOUR, (128,) * 3, "A grey level or [red, green, blue].", "128")
    pre_encode_images: bool = key(BOOL, False, "Samples hold encoded files.")
    encode_format: Literal["png", "jpeg"] = key(
        choice("png", "jpeg"), "png",
        '`"png"` or `"jpeg"`. A JPEG that needs no change, and is without fault, passes through as it came.',
    )  # fmt: skip
    jpeg_quality: int = key(integer(0, 255), 92, "Of encoded JPEGs, as libjpeg has it: 1 to 100.")
    jpeg_chroma: Literal["444", "422", "420"] = key(
        choice("444", "422", "420"), "444", 'How encoded JPEGs sample their colours: `"444"`, `"422"` or `"420"`.'
    )
    apply_exif_orientation: bool = key(
        BOOL, True,
        "Pictures are turned as Pillow's `ImageOps.exif_transpose` does (EXIF; in PNG text chunks of it too; else XMP), before the bucket "
        "is chosen; `original_width` and `original_height` are the turned ones.",
    )  # fmt: skip
    on_truncated: Literal["error", "accept"] = key(
        choice("error", "accept"), "error", '`"error"`, or `"accept"`: deliver what there is of a JPEG, PNG or WebP that ends early.'
    )
    on_damaged: Literal["error", "accept"] = key(
        choice("error", "accept"), "accept",
        '`"accept"` or `"error"`: JPEGs whose data cannot be right, as libjpeg patches them up; counted in `stats()["damaged"]`.',
    )  # fmt: skip
    max_pixels: int = key(integer(1), 2**28, "Larger pictures are failures.")


Label = Callable[[tuple[bytes, int] | Entry, int], int]  # see labels.py


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """What the workers have to know of batches; DatagoBatchDataset makes it of its arguments.

    Attributes:
        size: pictures in a batch.
        drop: whether a batch that does not get full is dropped.
        mean, std: a number for each channel.
        most_waiting: pictures that may wait in batches that are not full.
        most, bytes: how many batches the memory_limit has room for, and how many bytes the largest has; 0 and 0: there is no limit.
        label: what gives a sample its class; None: samples have none.
        planning: what planned batches follow; None: a batch is made of the next samples of one size.
    """

    size: int
    layout: Literal["NCHW", "NHWC"]
    drop: bool
    dtype: str
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    most_waiting: int
    most: int
    bytes: int
    label: Label | None = None
    planning: "Planning | None" = None


@dataclass(frozen=True, kw_only=True)
class Settings(Generic[S]):
    """The keys of a config; and `batch`, None where samples leave one by one."""

    source_type: str = key(one_of(sources.registered), sources.DEFAULT, "Where samples come from.")
    source_config: S = key(OBJECT, doc="The keys of that source.")
    image_config: ImageSettings = key(OBJECT, None, "What becomes of pictures.", inside=ImageSettings)
    limit: int = key(integer(1), MAX_INT, "Good samples after which the stream ends; failures do not count.", "all")
    samples_buffer_size: int = key(integer(1, 2**20), 64, "Decoded samples kept ready.")
    on_error: Literal["skip", "raise"] | Callable[[Failure], Any] = key(
        POLICY, "skip",
        '`"skip"` counts a failed item and goes on, `"raise"` raises `SampleError`; or a function, which is called with a `Failure` '
        "(`name`, `reason`, `text`) in the reader's thread; what it raises reaches the reader.",
    )  # fmt: skip
    max_failures: int | float | None = key(
        FAILURES, None,
        "How many items may fail: an integer, or a fraction (`0.1`) of all items; one more raises `SourceError`, which names the first. "
        "`1.0` is no limit. By default more than half of the first 100 items are too many, unless `on_error` tells of each.",
        "half of the first 100 items",
    )  # fmt: skip
    max_file_bytes: int = key(integer(1), 2**30, "Larger files, images in shards and downloads are failures.")
    memory_limit: int | None = key(
        integer(1), None, "Bytes of encoded images and pixels in flight, until they are handed out; workers wait for room."
    )
    log_period: float = key(PERIOD, 0, "Seconds between two INFO lines about speed, counts and bottleneck; 0: none.")
    seed: int | None = key(integer(0, 2**64 - 1), None, "Decides the shuffled order, and what is drawn for each sample.")
    epoch: int = key(NATURAL, 0, "Each epoch has another shuffled order.")
    ordered: bool = key(BOOL, False, "Samples leave in the order in which they are enumerated, whatever the threads do.")
    uneven: Literal["keep", "drop", "pad"] = key(
        UNEVEN, "keep", '`"keep"`: every sample once; `"drop"`, `"pad"`: as many on every rank, some left out, or some twice.'
    )
    strict: bool = key(BOOL, False, "An unknown key, in any section, raises `ValueError`; else it warns.")
    batch: BatchSettings | None = None


# Keys that older examples carry and nothing ever read: known, and silent.
IGNORED_KEYS = {
    "config": {"prefetch_buffer_size", "num_threads", "max_connections", "image_transform"},
    "source_config": {"shuffle", "return_latents", "return_duplicate_state"},
    "image_config": set[str](),
    "image_config.random_resized_crop": set[str](),
    "image_config.pad": set[str](),
}
