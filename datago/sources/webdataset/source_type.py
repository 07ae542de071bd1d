"""What the registry knows of the WebDataset source: its keys, the form of its state, and what the command line says of it."""

import os
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from datago.checks import CRC, NATURAL, integer, list_of, ranges
from datago.net.url import redact, scheme_of
from datago.sources.protocol import SourceType, Survey
from datago.sources.settings import PassSettings, with_order
from datago.sources.webdataset.ledger import BITS, MAX_NUMBER
from datago.sources.webdataset.settings import WebDatasetSettings

if TYPE_CHECKING:
    from datago.settings import Settings
    from datago.sources.webdataset.source import WebDatasetSource

ORDINALS = 2 ** (63 - BITS) - 1
STATE = {
    "shards": NATURAL,
    "listing": CRC,
    "done": ranges(ORDINALS),
    "partial": [list_of(3, integer(0, ORDINALS), integer(0, MAX_NUMBER), integer(0, MAX_NUMBER))],
    "last": integer(-1),
}


class WebDatasetType(SourceType[WebDatasetSettings]):
    settings = WebDatasetSettings
    other_words = frozenset(("wds", "web_dataset", "webdatasets", "tar", "tars", "shard", "shards"))
    state = STATE
    skips = MappingProxyType(
        {
            "litter": "A member that archivers and file managers leave behind (`._*`, `__MACOSX`, `.DS_Store` …).",
            "no suffix": "A member whose name has no suffix, and so belongs to no sample.",
            "no image": "A sample without an image.",
            "repeated member": "Of two members of a sample with one field (`a.jpg`, `a.JPG`) the last counts.",
            "large member": "A member that is no image, and larger than 64 MB or max_file_bytes.",
            "cut off with its shard": "The last sample before a shard's damage, which may lack something.",
            "bytes after the end of an archive": "A shard that goes on behind its end.",
            "symlink": "A member of that kind; the data is elsewhere.",
            "link": "A hard link; the data is elsewhere.",
            "sparse": "A file with holes.",
            "device": "A device file.",
            "fifo": "A named pipe.",
            "other": "A member of a kind that no sample is made of.",
        }
    )
    listed = "shards"
    competitor = "webdataset"

    def check(self, config: "Settings[WebDatasetSettings]") -> WebDatasetSettings:
        if config.uneven != "keep" and not config.source_config.shard_index:
            raise ValueError(
                f"uneven: got {config.uneven!r}, wanted 'keep' without source_config.shard_index, as the ranks' sample counts are not known"
            )
        return with_order(config, "random_sampling", "shuffle")

    def recognise(self, given: str) -> dict[str, Any] | None:
        found = scheme_of(given) or "{" in given or "*" in given or given.endswith((".tar", ".tar.gz", ".tgz", ".tar.zst"))
        return {"url": given} if found else None

    def make(self, settings: PassSettings[WebDatasetSettings]) -> "WebDatasetSource":
        from datago.sources.webdataset.source import WebDatasetSource

        return WebDatasetSource(settings)

    def describe(self, config: "Settings[WebDatasetSettings]") -> list[str]:
        source = config.source_config
        urls = source.url if isinstance(source.url, list | tuple) else [source.url]
        text = ", ".join(redact(os.fspath(url)) for url in urls[:3]) + (f" and {len(urls) - 3} more" if len(urls) > 3 else "")
        kept = f"; shards are kept in {os.fspath(source.cache_dir)!r}" if source.cache_dir else ""
        return [f"Samples in the shards {text}, the main image is *.{source.reference_image_type}{kept}."]

    def survey(
        self,
        config: "Settings[WebDatasetSettings]",
        ranks: Sequence[int],
        world_size: int,
        settings: Callable[[int, int], PassSettings[WebDatasetSettings]],
        report: Callable[[str, int], None],
    ) -> Survey:
        from datago.sources.webdataset.index import sample_counts
        from datago.sources.webdataset.partition import Partition
        from datago.sources.webdataset.present import check_shards

        source = config.source_config
        report("shards", 0)
        shards = self._shards(source)
        counts = sample_counts(source.shard_index, shards, self._options(source)) if source.shard_index else None
        looked_at = check_shards(shards, self._options(source))
        found = []
        for rank in ranks:
            part = Partition(settings(rank, world_size), shards, counts)
            found.append({"shards": len(part.shards), "samples": part.count if part.target is None else part.target})
            if part.by_sample:
                found[-1]["shared"] = True
        some = {"looked at": looked_at} if looked_at < len(shards) else {}
        return Survey({"shards": len(shards), **some, "samples": None if counts is None else sum(counts)}, found)

    def enumerate(self, settings: PassSettings[WebDatasetSettings]) -> Iterator[int]:
        yield len(self._shards(settings.source))

    def for_competitor(self, config: "Settings[WebDatasetSettings]") -> dict[str, Any]:
        source = config.source_config
        return {"suffix": source.reference_image_type, "shards": self._shards(source)}

    def _shards(self, source: WebDatasetSettings) -> list[str]:
        from datago.sources.webdataset.urls import shard_urls

        return shard_urls(source.url, **self._options(source))

    def _options(self, source: WebDatasetSettings) -> dict[str, Any]:
        from datago.environment import attempts

        return {"token": source.auth_token, "timeout": source.timeout, "attempts": attempts(), "stop": None}


SOURCE_TYPE = WebDatasetType()
