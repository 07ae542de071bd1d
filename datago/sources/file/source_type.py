"""The file source: images below a folder."""

import os
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from datago.checks import BOOL, CRC, MAX_INT, NATURAL, UNEVEN, integer, list_of, ranges, require
from datago.errors import SourceValueError, printable
from datago.sources.file.settings import FileSettings
from datago.sources.protocol import SourceType, Survey
from datago.sources.settings import PassSettings

if TYPE_CHECKING:
    from datago.settings import Settings
    from datago.sources.file.source import FileSource
    from datago.sources.file.tree import Tree

NAMED = 10  # folders that cannot be listed
STATE = {
    "done": ranges(MAX_INT),
    "listing": list_of(3, NATURAL, CRC, BOOL),
    "phases": [{"world_size": integer(1), "uneven": UNEVEN, "done": [ranges(MAX_INT)]}],
}


class FileType(SourceType[FileSettings]):
    settings = FileSettings
    other_words = frozenset(
        ("files", "folder", "folders", "dir", "directory", "imagefolder", "image_folder", "filesystem", "local", "disk", "path")
    )
    state = STATE
    skips = MappingProxyType(
        {
            "hidden": "A file or folder whose name begins with a dot.",
            "litter": "A folder that archivers, file systems and storage boxes leave behind (`__MACOSX`, `@eaDir` …).",
            "symlink to a folder": "A symlink that leads to a folder is not followed.",
        }
    )
    has_folders = True
    can_restripe = True
    competitor = "torch"

    def recognise(self, given: str) -> dict[str, Any] | None:
        return {"root_path": os.path.abspath(given)} if os.path.isdir(given) else None

    def make(self, settings: PassSettings[FileSettings]) -> "FileSource":
        from datago.sources.file.source import FileSource

        return FileSource(settings)

    def class_folders(self, config: "Settings[FileSettings]") -> list[str]:
        """As ImageFolder numbers them: the folders right below the root that are read. Source: torchvision.datasets.folder.find_classes."""
        root = config.source_config.root_path
        names = self._tree(root, {}).folders()
        if not names:
            raise SourceValueError(f"root_path: no folder below {os.fsdecode(root)!r} that could be a class")
        return names

    def check_state(self, state: dict[str, Any]) -> None:
        super().check_state(state)
        for phase in state["source"]["phases"]:
            streams = len(phase["done"])
            require(streams and streams % phase["world_size"] == 0, "source.phases", phase, "as many streams on each rank")

    def restripe(self, states: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What was left of all is dealt out anew: what each stream had handed out becomes a phase (see plan.remaining)."""
        begun = [state["source"] for state in states if state["source"] is not None]
        if not begun:
            return None
        done = [state["source"]["done"] if state["source"] else [] for state in states]
        phase = {"world_size": states[0]["world_size"], "uneven": states[0]["uneven"], "done": done}
        listing = max(source["listing"] for source in begun)
        return {"done": [], "listing": listing, "phases": [*begun[0]["phases"], phase]}

    def describe(self, config: "Settings[FileSettings]") -> list[str]:
        return [f"Images below {os.fspath(config.source_config.root_path)!r}."]

    def survey(
        self,
        config: "Settings[FileSettings]",
        ranks: Sequence[int],
        world_size: int,
        settings: Callable[[int, int], PassSettings[FileSettings]],
        report: Callable[[str, int], None],
    ) -> Survey:
        from datago.engine._sample import Failure
        from datago.order import plan

        skipped: dict[str, int] = {}
        root, images = os.fspath(config.source_config.root_path), 0
        tree = self._tree(root, skipped)
        for step in tree.walk():
            images += 0 if isinstance(step, Failure) else len(step)
            report(f"images below {root}", images)
        if not images:
            raise tree.nothing()
        shares = [len(plan.share(images, rank, world_size, world_size, config.uneven)) for rank in ranks]
        return Survey(
            {"samples": images, "unreadable folders": len(tree.unread), "skipped": skipped},
            [{"samples": count} for count in shares],
            [f"{printable(failure.name)}: {failure.text}" for failure in tree.unread[:NAMED]],
        )

    def _tree(self, root: "str | os.PathLike[str]", skipped: dict[str, int]) -> "Tree":
        from datago.sources.file.tree import Tree

        return Tree(os.fsencode(root), skipped)

    def for_competitor(self, config: "Settings[FileSettings]") -> dict[str, Any]:
        return {"root": os.fspath(config.source_config.root_path)}


SOURCE_TYPE = FileType()
