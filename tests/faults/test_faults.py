"""Every source crossed with every fault: it ends in time, the counts add up, all that was not struck arrives intact, nothing is
lost in silence. The table is printed at the end of the run.

Cells run side by side, since most of them wait; each has its own limit, and each is a test.
"""

import os
import pathlib
import queue
import sys
import tempfile
import threading

import album
import pytest
from album import CACHED, COLUMNS, DB, FILE, GROUP, GROUPS, HTTP, PAGE, TAR, VICTIM
from conftest import tables
from processes import CACHES, PROCESSES, cache_cell, process_cell
from reading import LIMIT, drain
from table import ARCHIVES, DISK, JUNK, NETWORK, PICTURES, moved

from datago import DatagoClient

SIDE_BY_SIDE = 8
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the faults are made by means of Linux")]
FILES = album.pictures()


def picture_cell(fault, column, root, wanted):
    damage, reason = PICTURES[fault]
    files = {**FILES, VICTIM: damage(FILES[VICTIM])}
    result = streamed(column, root, files)
    if reason is None:
        album.check(result, wanted, set(), error=False, changed=[VICTIM])
        assert result["stats"]["damaged"] == 1
        return result
    album.check(result, wanted, {VICTIM}, error=False)
    (last,) = result["stats"]["last_failures"]
    assert VICTIM in last["name"] and last["reason"] == reason, last
    return result


def streamed(column, root, files, strike=None):
    with album.source(column, root, files, strike) as config:
        return drain(DatagoClient(config))


def archive_cell(fault, column, root, wanted):
    damage, numbers = ARCHIVES[fault]
    lost = type(numbers)(GROUP[i] for i in numbers)
    if column == TAR:
        config = album.local_shards(root, FILES)
        (root / "1.tar").write_bytes(damage((root / "1.tar").read_bytes()))
        result = drain(DatagoClient(config))
    else:
        result = streamed(column, root, FILES, lambda answers: answers.update({"/1.tar": album.answer(damage(album.shard(GROUP, FILES)))}))
    album.check(result, wanted, lost, error=False)
    (last,) = result["stats"]["last_failures"]
    assert "1.tar" in last["name"] and last["reason"] == "shard", last
    return result


def disk_cell(fault, column, root, wanted):
    strike, _ = DISK[fault]
    if column == FILE:
        config = {**album.folder(root, FILES), "samples_buffer_size": 1}
        path = root / f"{VICTIM}.png"
        # Two workers and a place for one sample: when the first has come, the fifth file is not read yet.
        result = drain(DatagoClient(config), lambda count: strike(path) if count == 1 else None)
        album.check(result, wanted, {VICTIM}, error=False)
    else:
        config = album.local_shards(root, FILES)
        strike(root / "1.tar")
        result = drain(DatagoClient(config))
        album.check(result, wanted, set(GROUP), error=False)
    (last,) = result["stats"]["last_failures"]
    assert (VICTIM if column == FILE else "1.tar") in last["name"], last
    return result


def network_cell(fault, column, root, wanted):
    say, passes = NETWORK[fault]
    path = {HTTP: "/1.tar", CACHED: "/1.tar", DB: f"/{VICTIM}", PAGE: "/page1"}[column]

    def strike(answers):
        answers.update({"/elsewhere": answers[path], "/circle": moved("/circle"), path: say(answers[path])})

    result = streamed(column, root, FILES, strike)
    if passes:
        album.check(result, wanted, set(), error=False)
        assert result["stats"]["failed"] == 0
    elif column == PAGE:
        album.check(result, wanted, set(GROUP + GROUPS[2]), error=True)
        assert "page 2" in result["error"] and "127.0.0.1" in result["error"]
    elif column == DB:
        album.check(result, wanted, {VICTIM}, error=False)
    else:
        album.check(result, wanted, GROUP, error=False)
    if not passes and column != PAGE:
        (last,) = result["stats"]["last_failures"]
        assert (VICTIM if column == DB else "/1.tar") in last["name"], last
    return result


CELLS = [
    *(("picture", fault, column, picture_cell) for fault in PICTURES for column in (FILE, TAR, HTTP, DB)),
    *(("shard", fault, column, archive_cell) for fault in ARCHIVES for column in (TAR, HTTP, CACHED)),
    *(("disk", fault, column, disk_cell) for fault, (_, both) in DISK.items() for column in ([FILE, TAR] if both else [FILE])),
    *(("network", fault, column, network_cell) for fault in NETWORK for column in (HTTP, CACHED, DB, PAGE)),
    *(("process", fault, column, process_cell) for fault in PROCESSES for column in (FILE, TAR, HTTP, DB)),
    *(("cache", fault, CACHED, cache_cell) for fault in CACHES),
]


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """cell -> a queue in which its result, or what it raised, will be; all that were asked for are begun."""
    asked = [item.callspec.params["cell"] for item in request.session.items if item.path == request.path and "cell" in item.fixturenames]
    results, waiting = {cell: queue.SimpleQueue() for cell in asked}, queue.SimpleQueue()
    before = {name: os.environ.get(name) for name in album.LIMITS}
    os.environ.update(album.LIMITS)
    wanted = album.reference(FILES, tmp_path_factory.mktemp("reference"))
    folders = tempfile.TemporaryDirectory()
    os.chmod(folders.name, 0o755)  # some read them as another user
    for i, cell in enumerate(asked):
        waiting.put((cell, pathlib.Path(folders.name, str(i))))

    def work():
        while not waiting.empty():
            cell, root = waiting.get()
            _, fault, column, run = cell
            root.mkdir()
            try:
                results[cell].put(run(fault, column, root, wanted))
            except BaseException as error:
                results[cell].put(error)

    for _ in range(SIDE_BY_SIDE):
        threading.Thread(target=work, daemon=True).start()
    yield results
    folders.cleanup()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    tables["faults"] = render({cell: verdicts.get(cell, "FAILED") for cell in asked})


verdicts = {}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[1]}-{cell[2]}")
def test_cell(cell, runs):
    result = runs[cell].get(timeout=3 * LIMIT)
    if isinstance(result, BaseException):
        raise result
    lost = 12 - len(result["found"])
    verdicts[cell] = f"{f'{lost} lost' if lost else 'whole'}{' + error' if result['error'] else ''} {result['seconds']:.1f} s"


@pytest.mark.parametrize("column", (FILE, TAR, HTTP, DB))
def test_an_epoch_that_delivers_nothing_is_an_error(column, tmp_path):
    (tmp_path / "x").mkdir()
    result = streamed(column, tmp_path / "x", dict.fromkeys(FILES, JUNK))
    assert result["error"].startswith("SourceValueError: none of the 12 items of the source gave a sample: 12 of 12 items failed (")
    assert result["stats"]["failures"] == {"unsupported": 12} and result["stats"]["seen"] == 12


def render(verdicts):
    """The table as lines: a fault each, and what came of it with each source."""
    lines = [f"{'':45}" + "".join(f"{column:22}" for column in COLUMNS)]
    rows = dict.fromkeys((kind, fault) for kind, fault, _, _ in verdicts)
    by_place = {(kind, fault, column): verdict for (kind, fault, column, _), verdict in verdicts.items()}
    for kind, fault in rows:
        lines.append(f"{kind:8} {fault:36}" + "".join(f"{by_place.get((kind, fault, column), '-'):22}" for column in COLUMNS))
    return [*lines, f"{len(verdicts)} cells, {sum(verdict == 'FAILED' for verdict in verdicts.values())} failed"]
