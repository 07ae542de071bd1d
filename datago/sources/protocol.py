"""What a source of samples is: the page for whoever writes one.

A source has two classes. A `SourceType` is what the registry (datago/sources/__init__.py) has under the name that a config gives as
`source_type`: the keys of its source_config, the form of its state, what it may pass over, and what the command line says of it. It loads
nothing heavy, since `import datago` may need it. A `Source` reads: there is one for each pass, and it lives in a module that its SourceType
imports when it makes the first. `datago.sources.register` adds a source, `datago.testing` says whether it keeps what it promises.

Neither knows the client or the worker threads. A source is told by its PassSettings what to read, yields entries, and is told to stop.
What a config says of it is a SourceSettings; both are in datago/sources/settings.py.

An entry is one of three things: a pair of the path (bytes) of an image file and its position; an `Entry` of datago.engine._sample, which
has a sample's fields, and the bytes of its images or the path of the first; or a `Failure` for something that the source itself could not
read, which reaches the reader as any other failed sample does. Entry and Failure have their position as an attribute. A position is the
number of a sample in its stream. It means the same sample in every pass with the same seed and epoch, or at least in this pass.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from datago.checks import require
from datago.sources.settings import PassSettings, SourceSettings

if TYPE_CHECKING:
    from datago.engine._sample import Entry, Failure
    from datago.settings import Settings

S = TypeVar("S", bound=SourceSettings)


class Source(Protocol):
    """One pass over a source of samples, for one stream.

    The client calls `open` once, in the reader's thread, then runs `batches` in a thread of its own. `stop`, `state` and `skipped` may
    be asked for from any thread while that runs.
    """

    work_ahead: int
    """How many entries may wait for a worker thread. A path is small, so that many may; where entries hold the bytes of images, some 32 to
    64 keep the workers busy."""

    target: int | None
    """Set by `open`: how many good samples this stream has promised, so that all ranks have equal counts. The pass ends there, and it is an
    error if fewer came. None: there is no such promise."""

    base: int
    """Set by `open`: how many leading bytes of each path say only where the folder lies, and are no part of a sample's name. 0 where
    entries are no paths."""

    skipped: dict[str, int]
    """What was passed over on purpose: a reason, one of `SourceType.skips`, and how many. It may grow while `batches` runs."""

    def open(self) -> None:
        """Looks at what can be looked at at once, such as whether a folder is there, before anything is read.

        Raises:
            SourceError: there is no such source, or the pass cannot be resumed.
            Stopped (datago.net.cancel): `stop` was called before it was done.
        """

    def batches(self) -> "Iterator[Sequence[tuple[bytes, int] | Entry | Failure]]":
        """Yields lists of entries until there are no more, or `stop` was called. What `settings.resume` says was handed out does not come
        again.

        Raises:
            SourceError: the source can give no more, or there was nothing at all. What was yielded before is still handed out.
        """

    def stop(self) -> None:
        """Makes `batches` end soon, also where it waits for a network or a disk. It may come at any time, before `open` and more than once,
        and from a finalizer or a signal handler: it takes no lock that is held for longer than a moment."""

    def state(self) -> dict[str, Any] | None:
        """What has been handed out so far, by `settings.progress`: a small dict of the form `SourceType.state` that JSON can write. A pass
        that has it as `settings.resume` gives the rest. What was yielded and is not in `progress` belongs to the rest.

        Returns:
            The dict, or what `resume` was if nothing has been read yet.

        Raises:
            SourceError: this pass has no order that can be resumed.
        """

    def count(self) -> int | None:
        """How many samples the stream has if none fails, the limit apart; None where that is not known. Called after `open`."""


@dataclass
class Survey:
    """What `datago check` finds without reading an image.

    Attributes:
        found: what there is for all ranks together: "samples" (an integer, or None where that is not known), and other counts by their
            names; "skipped" is a dict of reason to count.
        ranks: for each rank that was asked for, "samples", and "shards" with "shared" (bool: ranks share the samples of each shard) for a
            source that has shards.
        warnings: sentences about what cannot be read.
    """

    found: dict[str, Any]
    ranks: list[dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


class SourceType(Generic[S]):
    """What datago has to know of a source before it reads from it. A source derives from this class, sets `settings`, `skips` and `state`,
    and defines `make`, `describe` and `survey`; everything else has a default that suits a source whose samples have attributes.

    `config` is a checked configuration below (datago/settings.py), whose `source_config` is of the class `settings`.
    """

    # ---- the config ----

    settings: ClassVar[type[SourceSettings]] = SourceSettings
    """The dataclass of its source_config. A source that can shuffle has the key `random_sampling`."""

    other_words: frozenset[str] = frozenset()
    """What people may write as source_type when they mean this one: the error says which one they may have meant."""

    def check(self, config: "Settings[S]") -> S:
        """Checks keys against each other, once each was found to be good, and settles what is left open. This default shuffles where the
        config says so, or says nothing but has a seed.

        Returns:
            The source_config as it is from now on; its `random_sampling` is a bool.

        Raises:
            ValueError: they do not go together; the text names the key, what it got and what it wants.
        """
        return with_order(config, "random_sampling")

    def recognise(self, given: str) -> dict[str, Any] | None:
        """The source_config for a folder, path, glob or url that stands in place of a config (on a command line); None: it is nothing that
        this source reads."""
        return None

    # ---- the pass ----

    skips: ClassVar[Mapping[str, str]] = {}
    """The reasons that may stand in `Source.skipped`, each with a sentence on what was passed over."""

    def make(self, settings: PassSettings[S]) -> Source:
        """The Source of one pass."""
        raise NotImplementedError

    own_order: str = ""
    """Where the source itself draws samples if `random_sampling` is set, as a server may, how they come, in words that end the sentence
    "Samples come …". Empty: a seed decides, and a shuffled pass can be resumed."""

    has_folders: bool = False
    """Whether entries are paths below a folder, so that their first folder can be their class."""

    def class_folders(self, config: "Settings[S]") -> list[str]:
        """The names of the folders that are classes, in their order. Only asked for with `has_folders`. Raises SourceError."""
        raise NotImplementedError

    def check_images(self, config: "Settings[S]") -> None:
        """Raises ValueError where the config asks for samples without images: batches are made of images."""

    # ---- the state ----

    state: ClassVar[Mapping[str, Any]] = {}
    """The form of what `Source.state` gives: for each key (it may be missing if a question mark is behind it) a check, a dict of the same
    kind, or a list with one of these, which any number of items in a list have."""

    def check_state(self, state: dict[str, Any]) -> None:
        """Checks a state dict (`DatagoClient.state_dict`) whose parts have the right form; its `source` is one that Source.state gave.

        Raises:
            ValueError: its parts contradict each other.
        """
        if not self.own_order:
            require(state["seed"] is not None or not state["shuffled"], "seed", None, "that of the order")

    def selection(self, config: "Settings[S]") -> dict[str, Any]:
        """The keys of source_config that say which samples are wanted, and their values: a state belongs to these. What can be told from
        the samples that come (the listing of a folder, say) needs no place here."""
        return {}

    can_plan: bool = False
    """Whether it makes a PlannedSource (datago/sources/planned.py) where `settings.planning` is given."""

    def own_state(self, states: list[dict[str, Any]], worker: int) -> dict[str, Any] | None:
        """With which of a rank's states this worker of it goes on, where there are as many workers as then; None: it is not there."""
        return next((state for state in states if state["worker"] == worker), None)

    can_restripe: bool = False
    """Whether a pass can go on with another number of streams than it began with."""

    def restripe(self, states: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What every stream of the new number has as `settings.resume`. Only called with `can_restripe`.

        Args:
            states: the state dicts of all streams that there were, in the order of their numbers.
        """
        raise NotImplementedError

    # ---- the command line ----

    def describe(self, config: "Settings[S]") -> list[str]:
        """What `datago check` says of a config: sentences on where samples come from, without secrets."""
        raise NotImplementedError

    def survey(
        self,
        config: "Settings[S]",
        ranks: Sequence[int],
        world_size: int,
        settings: Callable[[int, int], PassSettings[S]],
        report: Callable[[str, int], None],
    ) -> Survey:
        """What `datago check` counts.

        Args:
            ranks: those, of `world_size`, whose samples are counted.
            settings: a function of a rank and a world_size, which gives what a Source of that rank is made of.
            report: to be called, while it takes long, with what is looked at and how many there are so far.

        Raises:
            SourceError: the source is not there, or has nothing.
        """
        raise NotImplementedError

    listed: str = "samples"
    """What `enumerate` counts."""

    def enumerate(self, settings: PassSettings[S]) -> Iterator[int]:
        """The stage "list" of `datago bench`: enumerates what the source has, without reading images where that can be avoided, and yields
        how many more there are, again and again. This default reads all entries."""
        source = self.make(settings)
        source.open()
        try:
            yield from map(len, source.batches())
        finally:
            source.stop()

    competitor: str | None = None
    """The package, of those in datago/cli/competitors.py, that `datago bench --compare` compares it with."""

    def for_competitor(self, config: "Settings[S]") -> dict[str, Any]:
        """What that package is to read, as arguments of its function in competitors.py that JSON can write."""
        raise NotImplementedError


def with_order(config: "Settings[S]", *keys: str) -> S:
    """The source_config with `random_sampling` settled: whether one of `keys` says so; where none says anything, whether the config has a
    seed."""
    source = config.source_config
    wishes = [wish for key in keys if (wish := getattr(source, key, None)) is not None]
    return replace(source, random_sampling=any(wishes) if wishes else config.seed is not None)
