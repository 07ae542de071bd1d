"""The dicts that readers get, as types: for type checkers and for who looks up what is in them. They are plain dicts."""

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from PIL.Image import Image


class Latent(TypedDict):
    data: bytes
    len: int


class SampleDict(TypedDict):
    """What `get_sample_auto_convert` gives, and DatagoIterDataset unless it yields Samples.

    `attributes` are plain Python values, of what is JSON text in `Sample.attributes`. One whose name is "json", or ends in ".json", is
    the text of a JSON member of a shard there, and its value here; text that is no JSON stays text. `image` is None where the sample has
    none. Images are in mode RGB where they have colours.
    """

    id: str
    source: str
    duplicate_state: int
    attributes: dict[str, Any]
    tags: list[str]
    coca_embedding: list[float]
    latents: dict[str, Latent]
    image: "Image | None"
    masks: "dict[str, Image]"
    additional_images: "dict[str, Image]"
    state: NotRequired[dict[str, Any]]


class Batch(TypedDict):
    """What DatagoBatchDataset yields; its docstring has shapes and types of what is Any here. `attributes` are those of SampleDict."""

    image: Any
    id: list[str]
    source: list[str]
    attributes: list[dict[str, Any]]
    bucket: tuple[int, int]
    original_size: list[tuple[int, int]]
    masks: dict[str, Any]
    additional_images: dict[str, Any]
    target: NotRequired[Any]
    valid: NotRequired[Any]
    state: NotRequired[dict[str, Any]]
