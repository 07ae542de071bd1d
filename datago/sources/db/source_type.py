"""What the registry knows of the database source: its keys, the form of its state, and what the command line says of it."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from datago.checks import Check, or_none, require
from datago.errors import raise_kept
from datago.sources.db import filters
from datago.sources.db.settings import DbSettings
from datago.sources.protocol import SourceType, Survey
from datago.sources.settings import PassSettings

if TYPE_CHECKING:
    from datago.settings import Settings
    from datago.sources.db.source import DbSource


def _is_identity(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() != b""
    except UnicodeEncodeError:
        return False


IDENTITY = Check(_is_identity, "an id")
STATE = {"last": or_none(IDENTITY), "after": or_none(IDENTITY), "missing": [IDENTITY]}


class DbType(SourceType[DbSettings]):
    settings = DbSettings
    other_words = frozenset(("database", "dataroom", "http", "api"))
    state = STATE
    skips = MappingProxyType({"repeated id": "A record whose id was already on this page or on the page before."})
    own_order = "as the server draws them at random"

    def check(self, config: "Settings[DbSettings]") -> DbSettings:
        shuffled = config.source_config.random_sampling
        if config.seed is not None and shuffled:
            raise ValueError(f"seed: got {config.seed}, wanted none with random_sampling: the server draws at random, and takes no seed")
        if config.ordered and shuffled:
            raise ValueError("ordered: got True, wanted false with random_sampling: the server draws at random, without an order")
        if config.uneven != "keep":
            raise ValueError(f"uneven: got {config.uneven!r}, wanted 'keep': the server does not say how many samples a rank has")
        source = config.source_config
        return replace(source, **filters.settled(source), return_latents=filters.names(source.return_latents))

    def make(self, settings: PassSettings[DbSettings]) -> "DbSource":
        from datago.sources.db.source import DbSource

        return DbSource(settings)

    def check_images(self, config: "Settings[DbSettings]") -> None:
        if not config.source_config.require_images:
            raise ValueError("source_config.require_images: got false, wanted true: a batch is made of images")

    def check_state(self, state: dict[str, Any]) -> None:
        super().check_state(state)
        source = state["source"]
        if source["last"] is None:
            good = source["after"] is None and not source["missing"]
            require(good, "source.last", None, "an id, as source.after or source.missing has ids")

    def selection(self, config: "Settings[DbSettings]") -> dict[str, Any]:
        """The filters that are set. They belong to the state because a source cannot tell from the records alone that they changed."""
        return filters.chosen(config.source_config)

    def describe(self, config: "Settings[DbSettings]") -> list[str]:
        from datago.net.url import redact

        source = config.source_config
        url = source.api_url or os.environ.get("DATAROOM_API_URL", "") or "(DATAROOM_API_URL is not set)"
        wanted = [f"{name}={value}" for name, value in filters.parameters(source)]
        images = "records with images" if source.require_images else "records without images"
        return [f"A database at {redact(url)}: {images}, {source.page_size} a page, {' '.join(wanted) or 'all of them'}."]

    def survey(
        self,
        config: "Settings[DbSettings]",
        ranks: Sequence[int],
        world_size: int,
        settings: Callable[[int, int], PassSettings[DbSettings]],
        report: Callable[[str, int], None],
    ) -> Survey:
        from datago.sources.db import source as db

        def ask(rank: int, of: int) -> int | None:
            report("asking the database", 0)
            return db.count(settings(rank, of))

        total = ask(0, 1)
        if config.source_config.random_sampling:  # Ids decide which rank takes an image, so only a walk would tell.
            return Survey({"samples": total}, [{"samples": total if world_size == 1 else None} for _ in ranks])
        return Survey({"samples": total}, [{"samples": ask(rank, world_size) if world_size > 1 else total} for rank in ranks])

    def enumerate(self, settings: PassSettings[DbSettings]) -> Iterator[int]:
        from datago.sources.db.pages import Pages
        from datago.sources.db.source import open_api, parameters

        pages = Pages(open_api(settings.source), settings, parameters(settings), 2 * settings.source.page_timeout)
        pages.start()
        try:
            while not pages.ended:
                if page := pages.get(1):
                    yield len(page[0])
        finally:
            pages.stop()
        raise_kept(pages, "error")


SOURCE_TYPE = DbType()
