"""The file source: images below a folder."""

import os
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from datago.checks import BOOL, CRC, MAX_INT, NATURAL, UNEVEN, choice, integer, list_of, or_none, ranges, require
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
    "phases": [
        {"world_size": integer(1), "uneven": UNEVEN, "done": [ranges(MAX_INT)], "batch_size?": integer(1), "taken?": [NATURAL]},
    ],
    # without batch_size and lane where the plan of the rest is not made yet
    "steps?": {"batch_size": or_none(integer(1)), "remainder": choice("keep", "drop"), "lane": or_none(NATURAL), "taken": [NATURAL]},
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
    can_plan = True
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
        source = state["source"]
        planned = source.get("steps")
        for phase in source["phases"]:
            streams = len(phase["done"])
            require(streams and streams % phase["world_size"] == 0, "source.phases", phase, "as many streams on each rank")
            of_plan = [key in phase for key in ("batch_size", "taken")]
            require(of_plan == [planned is not None] * 2, "source.phases", phase, "batch_size and taken, where there are steps")
        if planned is not None:
            require(_lane(state) < state["workers"], "source.steps.lane", planned["lane"], f"less than workers, {state['workers']}")
            for done in (source["done"], *(one for phase in source["phases"] for one in phase["done"])):
                require(not done or len(done) == 1 and done[0][0] == 0, "source.done", done, "one range from 0, since steps come in order")

    def own_state(self, states: list[dict[str, Any]], worker: int) -> dict[str, Any] | None:
        """Planned steps go on in their order: a reader takes from the workers in turn, beginning with the first, so that one has to
        go on with the lane whose turn it is. That can be told where the states of all workers are there."""
        begun = [state["source"] for state in states if state["source"] is not None]
        workers = states[0]["workers"] if states else 0
        by_lane = {_lane(state): state for state in states}
        if not begun or "steps" not in begun[0] or sorted(by_lane) != list(range(workers)) or len(states) != workers:
            return super().own_state(states, worker)
        done = [_groups(by_lane[lane]["source"]) for lane in range(workers)]
        steps = sum(done)
        if done != [len(range(lane, steps, workers)) for lane in range(workers)]:
            return super().own_state(states, worker)
        lane = (worker + steps) % workers
        found = by_lane[lane]
        nothing = {**begun[0], "done": [], "steps": {**begun[0]["steps"], "lane": lane, "taken": []}}
        return {**found, "source": found["source"] or nothing}

    def restripe(self, states: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What was left of all is dealt out anew: what each stream had handed out becomes a phase (see plan.remaining)."""
        begun = [state["source"] for state in states if state["source"] is not None]
        if not begun:
            return None
        world_size, planned = states[0]["world_size"], [source["steps"] for source in begun if "steps" in source]
        steps = next((found for found in planned if found["batch_size"] is not None), None)
        if planned and steps is None:
            return {**begun[0], "done": []}  # nothing came since it was dealt out the last time
        in_lanes = {state["rank"] + world_size * _lane(state): state["source"] for state in states}
        done = [source["done"] if source else [] for _, source in sorted(in_lanes.items())]
        phase = {"world_size": world_size, "uneven": states[0]["uneven"], "done": done}
        listing = max(source["listing"] for source in begun)
        rest = {"done": [], "listing": listing, "phases": [*begun[0]["phases"], phase]}
        if steps is not None:
            phase["batch_size"] = steps["batch_size"]
            phase["taken"] = [sample for source in begun for sample in source["steps"]["taken"]]
            rest["steps"] = {**steps, "batch_size": None, "lane": None, "taken": []}
        return rest

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


def _lane(state: dict[str, Any]) -> int:
    """Which part of its rank's planned steps a stream takes."""
    planned = (state["source"] or {}).get("steps")
    return int(planned["lane"] if planned and planned["lane"] is not None else state["worker"])


def _groups(source: dict[str, Any] | None) -> int:
    """How many planned steps a stream has handed out."""
    return int(source["done"][0][1]) if source and source["done"] else 0


SOURCE_TYPE = FileType()
