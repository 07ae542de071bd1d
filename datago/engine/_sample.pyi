from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer

from datago.engine._payload import ImagePayload, LatentPayload, PixelBuffer

class Sample:
    id: str
    source: str
    duplicate_state: int
    image: ImagePayload
    masks: dict[str, ImagePayload]
    additional_images: dict[str, ImagePayload]
    latents: dict[str, LatentPayload]
    coca_embedding: list[float]
    tags: list[str]
    @property
    def attributes(self) -> str: ...

class SampleBatch:
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def dropped(self) -> bool: ...
    @property
    def pixels(self) -> PixelBuffer: ...
    @property
    def samples(self) -> list[Sample]: ...
    @property
    def targets(self) -> list[int]: ...
    @property
    def valid(self) -> list[bool]: ...

class Failure:
    position: int
    def __init__(self, name: str, reason: str, text: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def text(self) -> str: ...

class Entry:
    position: int
    def __init__(
        self,
        id: str,
        source: str,
        images: Iterable[tuple[str, str | None, Buffer]],
        attributes: str = "{}",
        duplicate_state: int = 0,
        tags: Iterable[str] = (),
        coca_embedding: Iterable[float] = (),
        latents: dict[str, Buffer] | None = None,
    ) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def images(self) -> list[tuple[str, str | None, Buffer]]: ...
    @property
    def attributes(self) -> str: ...
    @property
    def duplicate_state(self) -> int: ...
    @property
    def tags(self) -> list[str]: ...
    @property
    def coca_embedding(self) -> list[float]: ...
    @property
    def latents(self) -> dict[str, Buffer]: ...
    def own(self) -> None: ...

def auto_convert(sample: Sample) -> dict[str, Any]: ...
