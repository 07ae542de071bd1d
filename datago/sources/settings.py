"""The settings of a source: what a config says of it, and what one pass is made of."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from datago.checks import RANK, WORLD_SIZE
from datago.engine._progress import Progress
from datago.keys import key

if TYPE_CHECKING:
    from datago.settings import Settings
    from datago.sources.planned import Planning


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The keys of a source_config. Each source has a dataclass of its own, derived from this one, whose fields are made by
    datago.keys.key. Lists of a config are tuples in here. Nobody changes settings; `dataclasses.replace` makes others.

    Attributes:
        random_sampling: whether samples come in another order than that of the source. A source that can shuffle has it as a key, with
            the default None, and SourceType.check settles what that means.
    """

    rank: int | Literal["auto"] = key(
        RANK, None, 'Which of `world_size` processes this one is, from 0; `"auto"`: as the launcher says.', "0"
    )
    world_size: int | Literal["auto"] = key(WORLD_SIZE, None, 'How many processes share the samples; or `"auto"`.', "1")
    random_sampling: bool = False


S = TypeVar("S", bound=SourceSettings, covariant=True)
T = TypeVar("T", bound=SourceSettings)


@dataclass(frozen=True, kw_only=True)
class PassSettings(Generic[S]):
    """What a Source is made of: all that decides what one stream reads in one pass.

    Attributes:
        source: what the config says of the source. Its `rank` and `world_size` may be "auto"; the two below are integers.
        rank: which process this is, of
        world_size: how many.
        stream: a stream is what one process reads. Where each rank has several processes (the workers of a DataLoader), worker k on
            rank r of world_size is stream r + world_size * k.
        streams: how many streams there are.
        limit: the most good samples that all workers of this rank hand out, 2**63 - 1 if there is no limit.
        max_file_bytes: the most bytes that one file or one member of an archive may have.
        ordered: samples shall be handed out in the same order in every pass with this seed and epoch.
        uneven: whether ranks may have unequal numbers of samples ("keep"), have some left out ("drop"), or some twice ("pad").
        epoch, seed: datago.order.plan makes a shuffled order of them.
        seed_is_random: the seed was drawn for this stream alone. False: all streams have the same seed, so they can share one order.
        progress: the positions of the samples that were handed out. Others fill it.
        planning: None, or what a planned pass follows; only a source whose SourceType `can_plan` is
            given it.
        resume: what `Source.state` gave in an earlier pass of this seed and epoch; None: the pass begins at the beginning.
    """

    source: S
    rank: int
    world_size: int
    stream: int
    streams: int
    limit: int
    max_file_bytes: int
    ordered: bool
    uneven: Literal["keep", "drop", "pad"]
    epoch: int
    seed: int
    seed_is_random: bool
    progress: Progress
    planning: "Planning | None"
    resume: dict[str, Any] | None


def with_order(config: "Settings[T]", *keys: str) -> T:
    """The source_config with `random_sampling` set to a bool: true if one of `keys` is true, or if none of them is given and the config has
    a seed."""
    source = config.source_config
    wishes = [wish for key in keys if (wish := getattr(source, key, None)) is not None]
    return replace(source, random_sampling=any(wishes) if wishes else config.seed is not None)
