"""How ranks come to as many steps, with one bucket at each: what the argument `steps` of DatagoBatchDataset means."""

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, Literal

from datago import agree, geometry
from datago.order import ranks
from datago.settings import Settings
from datago.sizing import Sizes, Sizing
from datago.sources import source_type
from datago.sources.planned import Planning

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Way = Literal["planned", "agreed", "own"]

log = logging.getLogger("datago")


class Stepping:
    """The way that was chosen, or is to be chosen when it is known how many ranks there are.

    Args:
        wanted: None leaves the choice to `way`.
        settings: a checked config.
        batch_size, remainder: as for DatagoBatchDataset.
        sizes: see Sizing.
        folder: where sizes are kept; None: in one for temporary files, which goes with this object.

    Attributes:
        planning: what planned batches follow.

    Raises:
        ValueError: `wanted` is no such way, or this source or order cannot be planned.
    """

    def __init__(
        self, wanted: Way | None, settings: Settings[Any], batch_size: int, remainder: Literal["keep", "drop"],
        sizes: "Sizes | ArrayLike | None", folder: str | os.PathLike[str] | None,
    ) -> None:  # fmt: skip
        if wanted not in ("planned", "agreed", "own", None):
            raise ValueError(f"steps: got {wanted!r}, wanted 'planned', 'agreed', 'own' or None")
        self._wanted, self._warned = wanted, False
        image = settings.image_config
        self._several = len(geometry.sizes(image)) > 1
        self._lack = ""
        if not source_type(settings.source_type).can_plan:
            self._lack = f"the source {settings.source_type!r} does not know the sizes of its pictures before it reads them"
        elif settings.source_config.random_sampling and settings.seed is None:
            self._lack = "all ranks need one order, and the config has no seed"
        if wanted == "planned" and self._lack:
            raise ValueError(f"steps: got 'planned', and {self._lack}")
        if folder is None:
            folder = os.path.join(tempfile.gettempdir(), f"datago-sizes-{secrets.token_hex(16)}")
            weakref.finalize(self, _remove, folder, os.getpid())
        sizing = Sizing(image, settings.max_file_bytes, sizes, os.fspath(folder))
        self.planning = Planning(batch_size=batch_size, remainder=remainder, sizes=tuple(geometry.sizes(image)), buckets=sizing)

    def way(self, settings: Settings[Any], worker: int | None) -> Way:
        """The way of a pass that begins now, in a worker of a DataLoader or in none (None). One warning where ranks may take unequal
        numbers of steps and nobody has said that they may. Raises ValueError: the workers of a DataLoader cannot ask other ranks."""
        source = settings.source_config
        world_size = ranks.resolve(source.rank, source.world_size)[1]
        if self._wanted == "planned":
            return "planned"
        if world_size == 1 or self._wanted == "own":
            return "own"
        if self._wanted == "agreed":
            if worker is not None:
                raise ValueError(
                    "steps: got 'agreed', and this is a worker of a DataLoader, which cannot ask other ranks: write steps='own', and read "
                    "the DataLoader by datago.agreed(loader)"
                )
            return "agreed"
        if not self._several:
            return "own"
        if not self._lack:
            return "planned"
        if worker is None and agree.initialized():
            return "agreed"
        if not self._warned and not worker:
            self._warned = True
            log.warning(
                "the %d ranks may take unequal numbers of batches, and one that waits for another at each step would wait for ever: steps "
                "cannot be planned (%s); read by datago.agreed(loader) with torch.distributed initialised, and say steps='own'",
                world_size, self._lack,
            )  # fmt: skip
        return "own"


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child ends too
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
