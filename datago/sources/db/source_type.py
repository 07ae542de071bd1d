"""The database source: paged records, whose images are downloaded."""

import os

from datago.checks import BOOL, REQUIRED, SECONDS, TEXT, integer, or_none, require
from datago.errors import raise_kept
from datago.sources.db import filters
from datago.sources.protocol import SourceType, Survey


def _is_identity(value):
    try:
        return isinstance(value, str) and value.encode() != b""
    except UnicodeEncodeError:
        return False


IDENTITY = _is_identity, "an id"
KEYS = {
    "sources": (filters.NAMES, REQUIRED),
    "page_size": (integer(1), REQUIRED),
    **filters.KEYS,
    **dict.fromkeys(("require_images", "require_embeddings", "random_sampling"), (BOOL, False)),
    "return_latents": (filters.NAMES, ""),
    "api_url": (TEXT, ""),
    "api_key": (TEXT, ""),
    "max_connections": (integer(1, 2**12), 64),
    "read_timeout": (SECONDS, 20),
    "page_timeout": (SECONDS, 120),
    "user_agent": (TEXT, "datago"),
}
STATE = {"last": or_none(IDENTITY), "after": or_none(IDENTITY), "missing": [IDENTITY]}


class DbType(SourceType):
    keys = KEYS
    other_words = frozenset(("database", "dataroom", "http", "api"))
    state = STATE
    own_order = "as the server draws them at random"

    def check(self, config):
        filters.settle(config.source_config)
        shuffled = config.source_config.random_sampling
        if config.seed is not None and shuffled:
            raise ValueError(f"seed: got {config.seed}, wanted none with random_sampling: the server draws, and takes no seed")
        if config.ordered and shuffled:
            raise ValueError("ordered: got True, wanted false with random_sampling: the server draws, and there is no order")
        if config.uneven != "keep":
            raise ValueError(f"uneven: got {config.uneven!r}, wanted 'keep': how many samples a rank has, the server does not say")

    def make(self, settings):
        from datago.sources.db.source import DbSource

        return DbSource(settings)

    def check_images(self, config):
        if not config.source_config.require_images:
            raise ValueError("source_config.require_images: got false, wanted true: a batch is made of images")

    def check_state(self, state):
        super().check_state(state)
        source = state["source"]
        if source["last"] is None:
            require(source["after"] is None and not source["missing"], "source.last", None, "an id, as there are some before it")

    def selection(self, config):
        """The filters that are set: a walk over other records cannot be told from this one by what comes."""
        return filters.chosen(config.source_config)

    def describe(self, config):
        from datago.net.url import redact

        source = config.source_config
        url = source.api_url or os.environ.get("DATAROOM_API_URL", "") or "(DATAROOM_API_URL is not set)"
        wanted = [f"{name}={value}" for name, value in filters.parameters(source)]
        images = "records with images" if source.require_images else "records without images"
        return [f"A database at {redact(url)}: {images}, {source.page_size} a page, {' '.join(wanted) or 'all of them'}."]

    def survey(self, config, ranks, world_size, settings, report):
        from datago.sources.db import source as db

        def ask(rank, of):
            report("asking the database", 0)
            return db.count(settings(rank, of))

        total = ask(0, 1)
        if config.source_config.random_sampling:  # there are no partitions: the ids decide, and only a walk would tell
            return Survey({"samples": total}, [{"samples": total if world_size == 1 else None} for _ in ranks])
        return Survey({"samples": total}, [{"samples": ask(rank, world_size) if world_size > 1 else total} for rank in ranks])

    def enumerate(self, settings):
        from datago.sources.db.pages import Pages
        from datago.sources.db.source import open_api, parameters

        pages = Pages(open_api(settings), settings, parameters(settings), 2 * settings.page_timeout)
        pages.start()
        try:
            while not pages.ended:
                if page := pages.get(1):
                    yield len(page[0])
        finally:
            pages.stop()
        raise_kept(pages, "error")


SOURCE_TYPE = DbType()
