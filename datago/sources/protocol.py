"""The interface of a source of samples. Read this page to write a source of your own.

A source has two classes. A `SourceType` describes the source: the keys of its source_config, the form of its state, the reasons for
which it may skip something, and what the command line says of it. The registry (datago/sources/__init__.py) has it under the name that a
config gives as `source_type`. It must load nothing heavy, since `import datago` may need it. A `Source` reads: there is one for each pass.
Its class is in a module of its own, which the SourceType imports when it makes the first Source. `datago.sources.register` adds a source
to the registry, and `datago.testing` tests whether a source keeps what this page promises.

Neither class knows the client or the worker threads. A Source gets PassSettings that say what to read, yields entries, and is told to
stop. The checked source_config is a SourceSettings; both classes are in datago/sources/settings.py.

An entry is one of three things: a pair of the path (bytes) of an image file and its position; an `Entry` of datago.engine._sample, which
has a sample's fields, and the bytes of its images or the path of the first; or a `Failure` for something that the source itself could not
read, which reaches the reader as any other failed sample does. Entry and Failure have their position as an attribute. A position is the
number of a sample in its stream. It means the same sample in every pass with the same seed and epoch, or at least in this pass.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from datago.checks import require
from datago.sources.settings import PassSettings, SourceSettings, with_order

S = TypeVar("S", bound=SourceSettings)

if TYPE_CHECKING:
    from datago.engine._sample import Entry, Failure
    from datago.settings import Settings


class Source(Protocol):
    """One pass over a source of samples, for one stream.

    The client calls `open` once, in the reader's thread, and then runs `batches` in a thread of its own. While that runs, any thread may
    call `stop` and `state` and read `skipped`.
    """

    work_ahead: int
    """How many entries may wait for a worker thread. Paths are small, so that many of them may wait; if entries hold the bytes of images,
    32 to 64 keep the workers busy."""

    target: int | None
    """Set by `open`: how many good samples this stream promises, so that all ranks have equal counts. The pass ends after that many, and
    fewer are an error. None if the stream promises no number."""

    base: int
    """Set by `open`: the length in bytes of the root folder's path, which is not part of a sample's name. 0 if entries are not paths."""

    skipped: dict[str, int]
    """How many things were skipped on purpose, by reason; the reasons are those of `SourceType.skips`. It may grow while `batches` runs."""

    def open(self) -> None:
        """Checks what can be checked before anything is read, such as whether a folder exists.

        Raises:
            SourceError: the source does not exist, or the pass cannot be resumed.
            Stopped (datago.net.cancel): `stop` was called before `open` was done.
        """

    def batches(self) -> "Iterator[Sequence[tuple[bytes, int] | Entry | Failure]]":
        """Yields lists of entries until there are no more, or `stop` is called. Entries that were handed out before, according to
        `settings.resume`, are left out.

        Raises:
            SourceError: the source cannot go on, or has no entry at all. Entries that were yielded before are still handed out.
        """

    def stop(self) -> None:
        """Makes `open` and `batches` end soon, even while they wait for a network or a disk. It may be called at any time, before `open`,
        and more than once. A finalizer or a signal handler may call it, so it must not take a lock that is held while anything is
        waited for."""

    def state(self) -> dict[str, Any] | None:
        """What has been handed out so far, as a small dict of the form `SourceType.state` that JSON can write. A pass that gets this dict
        as `settings.resume` yields the rest. `settings.progress` says which positions were handed out: an entry that was yielded but is
        not in `progress` belongs to the rest.

        Returns:
            The dict, or `settings.resume` if nothing has been read yet.

        Raises:
            SourceError: this pass has no order that can be resumed.
        """

    def count(self) -> int | None:
        """How many samples the stream has if none fails, regardless of the config's `limit`, or None if that is not known. It is called
        after `open`."""


@dataclass
class Survey:
    """What `datago check` finds without reading an image.

    Attributes:
        found: the counts for all ranks together: "samples" (an integer, or None if that is not known), and other counts by their names;
            "skipped" is a dict of reason to count.
        ranks: for each rank that was asked for, a dict with "samples" and, for a source with shards, "shards", and "shared": True if
            ranks share the samples of each shard.
        warnings: sentences about things that cannot be read.
    """

    found: dict[str, Any]
    ranks: list[dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


class SourceType(Generic[S]):
    """Describes a source to the rest of datago. A source derives from this class, sets `settings`, `skips` and `state`, and defines `make`,
    `describe` and `survey`; everything else has a default that suits a source whose samples have attributes.

    In all methods `config` is a checked configuration (datago/settings.py), whose `source_config` is an instance of `settings`.
    """

    # ---- the config ----

    settings: ClassVar[type[SourceSettings]] = SourceSettings
    """The dataclass of the source_config. A source that can shuffle has the key `random_sampling`."""

    other_words: frozenset[str] = frozenset()
    """Other words that users may write as source_type when they mean this source. The error for such a word names this source."""

    def check(self, config: "Settings[S]") -> S:
        """Checks keys against each other, after each was checked alone, and sets the keys whose default depends on others. This default
        implementation shuffles if the config says so, or if the config does not say but has a seed.

        Returns:
            The source_config that is used from now on; its `random_sampling` is a bool.

        Raises:
            ValueError: keys contradict each other. The text names the key, its value, and what was wanted.
        """
        return with_order(config, "random_sampling")

    def recognise(self, given: str) -> dict[str, Any] | None:
        """The source_config for a folder, path, glob or url that the user gives on the command line in place of a config, or None if this
        source does not read such a thing."""
        return None

    # ---- the pass ----

    skips: ClassVar[Mapping[str, str]] = {}
    """The reasons that may be in `Source.skipped`, each with a sentence that says what was skipped."""

    def make(self, settings: PassSettings[S]) -> Source:
        """Makes the Source of one pass."""
        raise NotImplementedError

    own_order: str = ""
    """The end of the sentence "Samples come …" for a source that draws random samples itself, as a server may, if `random_sampling` is set.
    Empty if the seed decides the order, so that a shuffled pass can be resumed."""

    has_folders: bool = False
    """Whether entries are paths below a folder, so that their first folder can be their class."""

    def class_folders(self, config: "Settings[S]") -> list[str]:
        """The names of the folders that are classes, in order. It is called only if `has_folders` is set. Raises SourceError."""
        raise NotImplementedError

    def check_images(self, config: "Settings[S]") -> None:
        """Raises ValueError if the config asks for samples without images. It is called for configs with batches, which need images."""

    # ---- the state ----

    state: ClassVar[Mapping[str, Any]] = {}
    """The form of what `Source.state` gives: for each key (it may be missing if a question mark is behind it) a check, a dict of the same
    kind, or a list with one of these, which any number of items in a list have."""

    def check_state(self, state: dict[str, Any]) -> None:
        """Checks a state dict (see `DatagoClient.state_dict`) whose values were checked one by one; its key `source` is the result of
        Source.state.

        Raises:
            ValueError: values contradict each other.
        """
        if not self.own_order:
            require(state["seed"] is not None or not state["shuffled"], "seed", None, "the seed of the shuffled order")

    def selection(self, config: "Settings[S]") -> dict[str, Any]:
        """The keys of source_config that say which samples are wanted, and their values. A state can be resumed only with the same ones.
        Keys whose change the source itself notices on resume (from the listing of a folder, say) are not needed here."""
        return {}

    can_plan: bool = False
    """Whether it makes a PlannedSource (datago/sources/planned.py) where `settings.planning` is given."""

    def own_state(self, states: list[dict[str, Any]], worker: int) -> dict[str, Any] | None:
        """With which of a rank's states this worker of it goes on, where there are as many workers as then; None: it is not there."""
        return next((state for state in states if state["worker"] == worker), None)

    can_restripe: bool = False
    """Whether a pass can be resumed with another number of streams."""

    def restripe(self, states: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The value of `settings.resume` for every stream of a pass that is resumed with another number of streams. It is called only if
        `can_restripe` is set.

        Args:
            states: the state dicts of all streams of the earlier pass, in the order of their numbers.
        """
        raise NotImplementedError

    # ---- the command line ----

    def describe(self, config: "Settings[S]") -> list[str]:
        """Sentences that `datago check` prints about a config: where samples come from, without secrets."""
        raise NotImplementedError

    def survey(
        self,
        config: "Settings[S]",
        ranks: Sequence[int],
        world_size: int,
        settings: Callable[[int, int], PassSettings[S]],
        report: Callable[[str, int], None],
    ) -> Survey:
        """Counts for `datago check`.

        Args:
            ranks: the ranks, of `world_size`, whose samples are counted.
            settings: a function of a rank and a world_size that returns the PassSettings of that rank.
            report: called again and again during a long count, with what is counted and how many there are so far.

        Raises:
            SourceError: the source does not exist, or is empty.
        """
        raise NotImplementedError

    listed: str = "samples"
    """The noun for what `enumerate` counts."""

    def enumerate(self, settings: PassSettings[S]) -> Iterator[int]:
        """The stage "list" of `datago bench`: lists what the source has, without reading images if that can be avoided, and yields again
        and again how many more were found. This default implementation reads all entries."""
        source = self.make(settings)
        source.open()
        try:
            yield from map(len, source.batches())
        finally:
            source.stop()

    competitor: str | None = None
    """The package in datago/cli/competitors.py with which `datago bench --compare` compares this source."""

    def for_competitor(self, config: "Settings[S]") -> dict[str, Any]:
        """The arguments, which JSON can write, of the function in competitors.py that runs the `competitor`."""
        raise NotImplementedError
