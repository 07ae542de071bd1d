"""Every source keeps what the protocol promises: ours, and one that a test makes up and registers."""

import pathlib
import re
from dataclasses import dataclass

import pytest
from conftest import config as folder_config
from conftest import jpeg
from database import Database
from tars import PIXEL, shards, tar, write_index
from tars import config as shard_config

from datago import DatagoClient, sources
from datago.checks import BOOL, MAX_INT, integer, ranges
from datago.engine._sample import Entry, Failure
from datago.keys import key
from datago.order import plan
from datago.sources import Source, SourceSettings, SourceType, Survey
from datago.sources.webdataset._tar import KIND_NAMES
from datago.testing import Conformance, Opened

pytestmark = pytest.mark.timeout(300)


class TestFolder(Conformance):
    size = 24

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.root = tmp_path / "folder"
        for i in range(self.size):
            path = self.root / f"d{i % 3}" / f"{i:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(16, 16))

    def config(self):
        return folder_config(self.root)

    def broken(self):
        (self.root / "d1" / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
        return self.config(), 1


class TestCaptions(TestFolder):
    """A folder where texts and metadata stand beside some of the pictures."""

    @pytest.fixture(autouse=True)
    def captions(self, folder):
        for i in range(0, self.size, 3):
            (self.root / f"d{i % 3}" / f"{i:02d}.txt").write_text("a picture")
        (self.root / "metadata.csv").write_text("file_name,label\nd1/01.jpg,7\n")


class TestShards(Conformance):
    sizes = 5, 3, 7, 4, 6, 2
    size = sum(sizes)

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.root, self.ids = tmp_path, shards(tmp_path, self.sizes)

    def config(self):
        return shard_config(self.root / "*.tar", reference_image_type="png")

    def broken(self):
        whole = tar([(f"x{i}.png", PIXEL) for i in range(3)])
        (self.root / "000002.tar").write_bytes(whole[: len(whole) // 4])
        return self.config(), 1


class TestIndexedShards(TestShards):
    """What an index says of them makes counts known, and equal ranks possible."""

    def config(self):
        return shard_config(self.root / "*.tar", reference_image_type="png", shard_index=write_index(self.root, self.ids))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    serving = pytest.importorskip("serving", reason="needs the packages of datago[serve]")
    with serving.serve(serving.make_album(tmp_path_factory.mktemp("album"))) as running:
        yield running


class TestDatabase(Conformance):
    size = 60

    one_order = False  # a walk is in the order of the server's ids, whatever the seed

    @pytest.fixture(autouse=True)
    def place(self, server):
        self.url, self.token, self.faulty = server.api_url, server.token, None
        yield
        if self.faulty is not None:
            self.faulty.stop()

    def config(self):
        source = {"sources": "", "page_size": 16, "require_images": True, "api_url": self.url, "api_key": self.token}
        return {"source_type": "db", "source_config": source}

    def broken(self):
        self.faulty = Database([f"id{i:02d}" for i in range(20)])
        self.faulty.records["id03"] = {"id": "id03", "source": "S"}
        return self.faulty.config(), 1


# ---- a source that nobody but this file knows -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SquaresSettings(SourceSettings):
    count: int = key(integer(1), doc="How many there are.")
    bad: int = key(integer(0), 0, "How many of them cannot be read.")
    random_sampling: bool = key(BOOL, None, "Shuffled.")


class Squares(Source):
    """Samples "0", "1", … up to `count`, which share one picture; those below `bad` cannot be read."""

    work_ahead, base, target = 8, 0, None

    def __init__(self, settings):
        self._settings, self._stopped, self.skipped = settings, False, {}
        for begin, end in settings.resume["done"] if settings.resume else ():
            settings.progress.add(begin, end)

    def open(self):
        settings = self._settings
        own = plan.permutation(settings.source.count, plan.key(settings.seed, settings.epoch) if settings.source.random_sampling else 0)
        self._own = own[plan.share(settings.source.count, settings.stream, settings.streams, settings.world_size, settings.uneven)]
        if settings.uneven != "keep":
            self.target = len(self._own)

    def count(self):
        return len(self._own)

    def batches(self):
        for begin, end in plan.gaps(self._settings.progress.ranges(), len(self._own)):
            for position in range(begin, end):
                if self._stopped:
                    return
                name = str(self._own[position])
                entry = (
                    Failure(name, "sample", "it is bad")
                    if int(name) < self._settings.source.bad
                    else Entry(name, "S", [("image", "", PIXEL)])
                )
                entry.position = position
                yield [entry]

    def stop(self):
        self._stopped = True

    def state(self):
        return {"done": self._settings.progress.ranges()}


class SquaresType(SourceType[SquaresSettings]):
    settings = SquaresSettings
    state = {"done": ranges(MAX_INT)}  # noqa: RUF012
    other_words = frozenset(["square"])

    def make(self, settings):
        return Squares(settings)

    def describe(self, config):
        return [f"{config.source_config.count} squares."]

    def survey(self, config, ranks, world_size, settings, report):
        count = config.source_config.count
        return Survey({"samples": count}, [{"samples": len(plan.share(count, rank, world_size))} for rank in ranks])


@pytest.fixture
def squares(monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", dict(sources.SOURCES))
    sources.register("squares", SquaresType())


@pytest.mark.usefixtures("squares")
class TestOwnSource(Conformance):
    size = 17

    def config(self):
        return {"source_type": "squares", "source_config": {"count": self.size}}

    def broken(self):
        return {"source_type": "squares", "source_config": {"count": self.size, "bad": 2}}, 2


def test_a_registered_source_is_one_like_ours(squares, tmp_path, capsys):
    from datago.cli import main

    with pytest.raises(ValueError, match="source_type: got 'square', wanted one of .*'squares'; did you mean 'squares'"):
        DatagoClient({"source_type": "square", "source_config": {"count": 3}})
    with pytest.raises(ValueError, match="source_config.count: missing"):
        DatagoClient({"source_type": "squares", "source_config": {}})
    path = tmp_path / "squares.json"
    path.write_text('{"source_type": "squares", "source_config": {"count": 9, "rank": 1, "world_size": 2}}')
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "9 squares." in out and "rank 1 of 2: 4 samples" in out


def test_a_name_is_taken_once(squares):
    with pytest.raises(ValueError, match="source_type: 'file' is taken"):
        sources.register("file", SquaresType())


def _unplaced(self):
    for batch in BATCHES(self):
        for entry in batch:
            entry.position = -1 if isinstance(entry, Failure) else entry.position
        yield batch


BATCHES = Squares.batches
FAULTS = {
    "it begins anew": ({"state": lambda self: {"done": []}}, "a_pass_goes_on_where_it_was"),
    "it takes what was handed out for a prefix": (
        {"state": lambda self: {"done": [[0, sum(end - begin for begin, end in self._settings.progress.ranges())]]}},
        "samples_may_be_handed_out_in_any_order",
    ),
    "it keeps another state": ({"state": lambda self: {"finished": 3}}, "a_state_has_the_form_that_it_should"),
    "it ignores its rank": (
        {"open": lambda self: setattr(self, "_own", range(self._settings.source.count))},
        "ranks_and_workers_share_the_samples",
    ),
    "it knows no seed": ({"open": lambda self: setattr(self, "_own", range(self._settings.source.count))}, "the_order_is_that_of_the_seed"),
    "it passes over what it does not declare": (
        {"stop": lambda self: self.skipped.update(rain=1)},
        "the_client_delivers_what_there_is",
    ),
    "it cannot count": ({"count": lambda self: len(self._own) + 1}, "counts_are_right_or_not_known"),
    "its failures have no position": ({"batches": _unplaced}, "failures_are_counted_and_have_positions"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_suite_sees(squares, monkeypatch, fault):
    changes, test = FAULTS[fault]
    for name, function in changes.items():
        monkeypatch.setattr(Squares, name, function)
    with pytest.raises((AssertionError, ValueError)):
        getattr(TestOwnSource(), f"test_{test}")()


def test_positions_are_the_entrys_own(squares):
    opened = Opened({"source_type": "squares", "source_config": {"count": 5, "bad": 1}})
    assert sorted(entry.position for entry in opened.take()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["db", "file", "webdataset"])
def test_the_reasons_that_a_wing_names_are_declared_and_no_others(name):
    wing = pathlib.Path(sources.__file__).parent / name
    text = "".join(path.read_text() for path in wing.glob("*.py"))
    named = set(re.findall(r'(?:_skip\(|skipped\[)"([^"]+)"', text)) | set(re.findall(r'return None, "([^"]+)"', text))
    if name == "webdataset":
        named |= {*KIND_NAMES} - {"unselected", "directory"}
    assert named == set(sources.source_type(name).skips)
