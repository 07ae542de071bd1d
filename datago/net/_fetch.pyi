from typing import Any

from typing_extensions import Buffer

REASONS: dict[int, str]

class Body(Buffer):
    def __len__(self) -> int: ...

class Fetcher:
    def __init__(
        self,
        max_connections: int = 64,
        timeout: float = 20,
        attempts: int = 3,
        user_agent: str = "datago",
        max_bytes: int = ...,
        capacity: int = 0,
    ) -> None: ...
    def submit(self, jobs: list[tuple[Any, str]]) -> bool: ...
    def take(self, timeout: float) -> list[tuple[Any, int, Body | None, tuple[str, str] | None]] | None: ...
    def close(self) -> None: ...
