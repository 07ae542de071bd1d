from collections.abc import Callable, Sequence

def read_texts(
    paths: Sequence[bytes], threads: int, most: int, stopped: Callable[[], bool]
) -> list[bytes | tuple[str, str] | None] | None: ...
