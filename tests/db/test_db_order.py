"""The database source: its order, and passes that are resumed."""

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from conftest import opened
from database import KEY, database, held, until
from faulty import answer, cut, slow

from datago import DatagoClient, SampleError, SourceError
from datago import config as configuration
from datago.checkpoint import resume
from datago.engine._progress import Progress
from datago.order.plan import gaps
from datago.sources import open_source
from datago.sources.db.window import Window

pytestmark = [pytest.mark.network, pytest.mark.timeout(40)]


@pytest.fixture(autouse=True)
def two_attempts(monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "2")


def names(count):
    """Ids in an order that is not that of their bytes: the server's order is not ours to know."""
    return [f"{(i * 7919) % count:04}-{'aZ_9'[i % 4]}" for i in range(count)]


def take(client, count=None):
    """The ids of the next `count` samples, or of all that are left."""
    found = []
    while (count is None or len(found) < count) and (sample := client.get_sample(timeout=20)) is not None:
        found.append(sample.id)
    return found


def rest(config, state):
    """What a new client gives of the epoch, and the state after that; loading does not change the state."""
    before, client = json.dumps(state), DatagoClient(config)
    client.load_state_dict(state)
    with client:
        found = take(client)
        after = client.state_dict()
    assert json.dumps(state) == before
    return found, json.loads(json.dumps(after))


# ---- kill -9 ----

CHILD = """
import json, os, sys
from datago import DatagoClient
config, state = map(json.loads, sys.argv[1:])
client = DatagoClient(config)
if state is not None:
    client.load_state_dict(state)
for sample in client:
    os.write(1, json.dumps({"id": sample.id, "state": client.state_dict()}).encode() + b"\\n")
"""


def run_until_killed(config, state, count):
    """The (id, state) pairs of a new process, killed after about `count`, and whether it came to its end."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "DATAGO_MAX_TASKS": "8", "PYTHONPATH": root}
    command = [sys.executable, "-c", CHILD, json.dumps(config), json.dumps(state)]
    # no buffer of ours, so that what is read line by line and what communicate reads are all that there was
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0)
    watch = threading.Timer(30, process.kill)
    watch.start()
    try:
        lines = [line for _, line in zip(range(count), process.stdout, strict=False)]
        if len(lines) == count:
            process.kill()
        more, errors = process.communicate()
        lines += more.splitlines(keepends=True)
    finally:
        watch.cancel()
        process.kill()
    assert process.returncode in (0, -9) and b"Traceback" not in errors, errors.decode()
    found = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [(line["id"], line["state"]) for line in found], process.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("ordered", [False, True])
def test_killed_at_random_moments(ordered):
    rng, order = random.Random(ordered), names(160)
    with database(order) as server:
        lost = set(order[5::23])
        for i, name in enumerate(order):
            if name in lost:
                server.pictures[name] = answer(b"{}", status="404 No") if i % 2 else answer(b"no picture")
            elif i % 3 == 0:
                server.pictures[name] = slow(server.good, rng.choice((0.01, 0.05, 0.2)))
            elif i % 17 == 1:
                server.pictures[name] = [cut(), server.good]
        found, state, kills, ended = [], None, 0, False
        while not ended:
            keys = {"page_size": rng.choice((3, 7, 50)), "max_connections": 16, "samples_buffer_size": 8}
            config = server.config(ordered=ordered, **keys)
            lines, ended = run_until_killed(config, state, rng.randrange(1, 15))
            kills += not ended
            for name, state in lines:
                found.append(name)
                source = state["source"]
                left = {*source["missing"], *order[order.index(source["last"]) + 1 :]}
                assert left.isdisjoint(found) and left | lost | set(found) == set(order)
        assert sorted(found) == sorted(set(order) - lost) and kills >= 5
        assert not ordered or found == [name for name in order if name not in lost]
        assert rest(config, state)[0] == []
        client = DatagoClient(config)
        client.load_state_dict(state)
        assert take(client) == []
        client.start()
        assert len(take(client)) == len(order) - len(lost)  # the next pass is whole


# ---- order ----


def test_ordered_is_the_servers_order_whatever_the_downloads_do():
    rng, order = random.Random(1), names(150)
    with database(order) as server:
        for name in order:
            server.pictures[name] = slow(server.good, rng.random() / 20)
        server.pictures[order[3]] = server.pictures[order[149]] = answer(b"{}", status="404 No")
        server.records[order[20]] = {"id": order[20]}
        server.records[order[21]] = "no record"
        with DatagoClient(server.config(ordered=True)) as client:
            assert take(client) == [name for i, name in enumerate(order) if i not in (3, 20, 21, 149)]
            assert client.stats()["failures"] == {"record": 2, "not_found": 2}
        assert server.asked() != order[:20] + order[22:]  # the downloads did not come in that order


@pytest.mark.parametrize("require_images", [True, False])
def test_ordered_holds_a_bounded_number_back(require_images):
    order, event = names(200), threading.Event()
    with database(order) as server:
        server.pictures[order[0]] = held(event, server.good)
        if not require_images:  # the others have nothing to download, and are done at once
            server.records = {name: {"id": name} for name in order[1:]}
            latent = {"latent_type": "raw", "file_direct_url": server.record(order[0])["image_direct_url"], "is_mask": False}
            server.records[order[0]] = {"id": order[0], "latents": [latent]}
        config = server.config(ordered=True, max_connections=2, require_images=require_images, has_latents="raw")
        with DatagoClient(config) as client:
            client.start()
            until(lambda: len(server.asked()) == (8 if require_images else 1) and server.count("/api/images/") == 3)
            time.sleep(0.2)
            # four a connection, on two pages, and one page ahead
            assert sorted(server.asked()) == sorted(order[: 8 if require_images else 1])
            assert server.count("/api/images/") == 3
            assert client.stats()["seen"] == 0
            event.set()
            assert take(client) == order


def test_at_random_there_is_no_order():
    with database(names(20)) as server:
        client = DatagoClient(server.config(random_sampling=True))
        begin = client.state_dict()
        client.start()
        with pytest.raises(SourceError, match="random_sampling: the server draws at random"):
            client.state_dict()
        client.stop()
        begin["source"] = {"last": "1", "after": "1", "missing": []}
        client.load_state_dict(begin)
        with pytest.raises(SourceError, match="random_sampling: the server draws at random"):
            client.start()
        with pytest.raises(ValueError, match="^ordered: .*random_sampling"):
            DatagoClient(server.config(random_sampling=True, ordered=True))
        state = DatagoClient(server.config()).state_dict()
        with pytest.raises(ValueError, match="^random_sampling: False when the state was taken"):
            DatagoClient(server.config(random_sampling=True)).load_state_dict(state)


# ---- resume ----


@pytest.mark.parametrize("ordered", [False, True])
def test_states_from_the_begin_to_the_end(ordered):
    order = names(60)
    with database(order) as server:
        config = server.config(ordered=ordered, max_connections=8, samples_buffer_size=4)
        states, found = [], []
        with DatagoClient(config) as client:
            states.append(client.state_dict())
            client.start()
            states.append(client.state_dict())
            assert states[0]["source"] is states[1]["source"] is None
            for _ in range(60):
                found += take(client, 1)
                states.append(client.state_dict())
            assert take(client) == []
            states.append(client.state_dict())
        assert sorted(found) == sorted(order)
        for i in (0, 1, 2, 3, 12, 33, 60, 61, 62):
            count = max(0, min(i - 1, 60))
            left, end = rest(config, states[i])
            assert sorted(left) == sorted(found[count:]) and end["delivered"] == 60
            assert end["source"] == {"last": order[-1], "after": order[-1], "missing": []}
        if ordered:
            assert all(state["source"]["missing"] == [] for state in states[2:])


def test_limit_of_a_pass_that_is_resumed():
    order = names(60)
    with database(order) as server:
        server.pictures[order[30]] = answer(b"{}", status="404 No")
        config = server.config(limit=40)
        with DatagoClient(config) as client:
            found = take(client, 15)
            state = client.state_dict()
        found += rest(config, state)[0]
        assert len(found) == len(set(found)) == 40


def test_a_state_has_no_secrets_and_little_else():
    order, event = names(500), threading.Event()
    with database(order) as server:
        late = [order[0], order[100], order[300]]
        for name in late:
            server.pictures[name] = held(event, server.good)
        with DatagoClient(server.config(page_size=20, max_connections=8)) as client:
            found = take(client, 480)
            state = client.state_dict()
            # the others are on their way: in the pool, or asked for
            assert set(late) <= set(state["source"]["missing"]) and len(state["source"]["missing"]) <= 20
            text = json.dumps(state)
            assert len(text) < 1000 and KEY not in text and "http" not in text and "SECRET" not in text
            event.set()
            found += take(client)
            assert sorted(found) == sorted(order)


def test_a_page_that_does_not_come_and_going_on_when_it_does():
    order = names(60)
    with database(order) as server:
        server.faults[4] = answer(b"{}", status="403 No")
        with DatagoClient(server.config()) as client:
            found = []
            with pytest.raises(SourceError, match="HTTP 403"):
                while True:
                    found += take(client, 1)
            state = client.state_dict()
        assert sorted(found) == sorted(order[:28])
        assert sorted(rest(server.config(), state)[0]) == sorted(order[28:])


def test_stopped_on_the_way_to_what_is_missing():
    order, event = names(60), threading.Event()
    with database(order) as server:
        state = DatagoClient(server.config()).state_dict()
        state["source"] = {"last": order[20], "after": None, "missing": [order[3], order[15]]}
        server.faults[2] = held(event, b"")  # the first page behind `last`, one with order[3], and then this one
        client = DatagoClient(server.config())
        client.load_state_dict(state)
        assert take(client, 1) == [order[3]]
        until(lambda: server.count("/api/images/") == 3)
        client.stop()
        event.set()
        after = client.state_dict()["source"]
        assert after == {"last": order[20], "after": order[3], "missing": [order[15]]}
        assert sorted(rest(server.config(), client.state_dict())[0]) == sorted([order[15], *order[21:]])


GONE = [(), ("last",), ("held",), ("last", "held"), ("begin",), ("begin", "last", "behind", "held")]


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("page_size", [3, 7, 100])
def test_records_that_come_and_go_between_state_and_resume(gone, page_size):
    order, event = names(60), threading.Event()
    new = {order[2], order[25], order[58]}  # come later
    with database(order) as server:
        server.hidden = set(new)
        late = [order[10], order[17]]
        for name in late:
            server.pictures[name] = held(event, server.good)
        # one at a time but for those that are held, so that nothing else is missing
        config = server.config(page_size=page_size, max_connections=3, samples_buffer_size=1)
        with DatagoClient(config) as client:
            found = take(client, 38)
            state = client.state_dict()["source"]
            at = order.index(state["last"])
            assert at < 58 and set(late) <= set(state["missing"])
        event.set()
        missing = set(state["missing"])
        roles = {"last": {state["last"]}, "held": {late[0]}, "begin": set(order[:10]), "behind": {order[at + 1]}}
        server.hidden = set().union(*(roles[role] for role in gone))
        full = DatagoClient(config).state_dict() | {"source": state, "delivered": 38}
        left, end = rest(config, full)
        # what was inserted before `last` was not there in this epoch
        assert sorted(left) == sorted((missing | set(order[at + 1 :])) - server.hidden)
        assert len(missing | set(found)) == len(missing) + len(found)
        assert end["source"] == {"last": order[-1], "after": order[-1], "missing": []}
        assert rest(config, end)[0] == []


def test_the_walk_over_what_is_missing_ends_where_the_other_begins():
    order = names(300)
    with database(order) as server:
        server.hidden = {order[0], order[50]}  # both the one that is missing and the last one were deleted
        state = DatagoClient(server.config()).state_dict()
        state["source"] = {"last": order[50], "after": None, "missing": [order[0]]}
        client = DatagoClient(server.config(limit=1))
        client.load_state_dict(state)
        assert len(take(client)) == 1
        cursors = [asked[3].rpartition("cursor=")[2] for asked in server.requests if "picture" not in asked[0]]
        assert len(cursors) < 15 and order[50] in cursors[0]


def test_ids_that_come_twice():
    order, event = names(40), threading.Event()
    with database(order) as server:
        server.inclusive = True
        server.pictures[order[4]] = held(event, server.good)
        config = server.config(samples_buffer_size=1)
        with DatagoClient(config) as client:
            found = take(client, 20)
            state = client.state_dict()
        event.set()
        assert order[4] in state["source"]["missing"]
        found += rest(config, state)[0]
        assert sorted(found) == sorted(order)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("bad", [{0}, {59}, {5, 6, 13, 14, 40}, set(range(7, 21)), {0, 1, 58, 59}])
def test_records_that_are_bad(ordered, bad):
    """Some have an id and some not; no good sample is lost by them, and none comes twice."""
    order = names(60)
    with database(order) as server:
        for i in bad:
            server.records[order[i]] = {"id": order[i], "tags": "x"} if i % 2 else {"id": None}
        # a page's `next` needs the id that the record lacks; the server knows it
        good = {name for i, name in enumerate(order) if i not in bad}
        config = server.config(ordered=ordered, max_connections=2)
        states, found = [], []
        with DatagoClient(config) as client:
            while sample := client.get_sample(timeout=20):
                found.append(sample.id)
                states.append(client.state_dict())
            states.append(client.state_dict())
        assert sorted(found) == sorted(good)
        for count in (1, 6, 20, len(good) - 1, len(good)):
            assert sorted(rest(config, states[count - 1])[0]) == sorted(found[count:])
        left, end = rest(config, states[-1])
        assert left == [] and rest(config, end)[0] == []


def test_a_record_without_id_is_handed_out_before_the_one_in_front_of_it():
    order, event = names(20), threading.Event()
    with database(order) as server:
        server.records[order[1]] = server.records[order[9]] = "no record"
        server.pictures[order[0]] = held(event, server.good)
        config = server.config(max_connections=1) | {"on_error": "raise"}
        with DatagoClient(config) as client:
            with pytest.raises(SampleError, match="page 1, record 2"):
                client.get_sample(timeout=20)
            state = client.state_dict()
        assert state["source"] == {"last": order[0], "after": None, "missing": [order[0]]}
        event.set()
        found, _ = rest(server.config(), state)
        assert sorted(found) == sorted(name for i, name in enumerate(order) if i not in (1, 9))


def test_records_without_id_do_not_end_the_walk_over_what_is_missing():
    order = names(60)
    with database(order) as server:
        server.records[order[4]] = server.records[order[21]] = "no record"
        state = DatagoClient(server.config()).state_dict()
        state["source"] = {"last": order[20], "after": None, "missing": [order[15]]}
        assert sorted(rest(server.config(), state)[0]) == sorted([order[15], *order[22:]])


# ---- ranks and workers ----

serving = pytest.importorskip("serving", reason="needs the packages of datago[serve]")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving.serve(serving.make_album(tmp_path_factory.mktemp("album"))) as running:
        yield running


def album_config(server, **keys):
    source = {"sources": "", "page_size": 4, "require_images": True, "api_url": server.api_url, **keys}
    return {"source_config": {**source, "api_key": serving.TOKEN}}


def test_ranks_that_are_resumed(server):
    found = []
    for rank in range(3):
        config = album_config(server, rank=rank, world_size=3)
        with DatagoClient(config) as client:
            found += take(client, 5)
            state = client.state_dict()
        found += rest(config, state)[0]
        with pytest.raises(ValueError, match="world_size: .*only the file source"):
            DatagoClient(album_config(server, rank=0, world_size=2)).load_state_dict(state)
    assert sorted(found) == serving.numbers()


def stream(config, worker, workers):
    parsed = configuration.parse(config)
    run = resume.begin(parsed, 0, worker, workers)
    run.draw()
    source = open_source(parsed, run, Progress())
    source.open()
    return [entry.id for batch in source.batches() for entry in batch]


@pytest.mark.parametrize("keys", [{}, {"random_sampling": True, "page_size": 100}])
def test_workers_of_ranks(server, keys):
    configs = [album_config(server, rank=rank, world_size=2, **keys) for rank in range(2)]
    parts = [stream(config, worker, 3) for config in configs for worker in range(3)]
    assert sorted(name for part in parts for name in part) == serving.numbers() and all(parts)


def test_more_streams_than_partitions(server):
    with pytest.raises(SourceError, match="world_size 7 with 7 workers each: .*between 2 and 48"):
        stream(album_config(server, rank=0, world_size=7), 6, 7)


def test_positions_count_the_walk(server):
    source = opened(album_config(server))
    entries = [entry for batch in source.batches() for entry in batch]
    assert [entry.id for entry in sorted(entries, key=lambda entry: entry.position)] == serving.numbers()
    assert sorted(entry.position for entry in entries) == list(range(60))


# ---- the window ----


def test_the_window_against_a_list():
    """A walk of which a random part is in flight, broken off and resumed again and again."""
    rng, order = random.Random(5), names(2000)
    place = {name: i for i, name in enumerate(order)}
    state, given = None, set()
    while len(given) < len(order):
        progress = Progress()
        window = Window(progress, state)
        behind = place[state["last"]] + 1 if state else 0
        left = [name for name in order[:behind] if name in state["missing"]] + order[behind:]
        inside, steps = [], rng.choice((5, 50, 100, 400))
        while (left or inside) and steps:
            steps -= 1
            if left and len(inside) < 40 and rng.random() < 0.7:
                inside.append((window.add(left[0]), left.pop(0)))
            elif inside:
                number, name = inside.pop(rng.randrange(len(inside)))
                progress.add(number, number + 1)
                given.add(name)
                state = json.loads(json.dumps(window.state()))
                last, after, missing = place[state["last"]], state["after"], set(state["missing"])
                assert len(missing) == len(state["missing"]) <= 80
                assert missing.isdisjoint(given) and not given & set(order[last + 1 :])
                assert len(given) + len(missing) == last + 1
                assert after is None or all(place[after] < place[name] for name in missing)


def test_states_of_a_window():
    def handed(*numbers):
        progress.add(numbers[0], numbers[-1] + 1)
        return window.state()

    progress = Progress()
    window = Window(progress, None)
    assert [window.add(name) for name in ("z", None, "b", "a", None)] == [0, 1, 2, 3, 4] and window.state() is None
    assert handed(2) == {"last": "b", "after": None, "missing": ["z"]}
    assert handed(4) == {"last": "a", "after": None, "missing": ["z", "a"]}
    assert handed(0) == {"last": "a", "after": "z", "missing": ["a"]}  # the one without an id has no other name
    assert handed(1) == {"last": "a", "after": "b", "missing": ["a"]}
    assert handed(3) == {"last": "a", "after": "a", "missing": []}
    state = {"last": "m", "after": "c", "missing": ["d", "k", "l"]}
    progress = Progress()
    window = Window(progress, state)
    assert [window.add("d"), window.add("l"), window.state()] == [0, 1, state]
    assert handed(1) == {"last": "m", "after": "c", "missing": ["d", "k"]}
    progress = Progress()
    window = Window(progress, state)
    assert [window.add("d"), window.add("k"), window.state()] == [0, 1, state]
    assert handed(0) == {"last": "m", "after": "d", "missing": ["k", "l"]}
    assert window.add("n") == 2  # so there is no "l" any more
    assert window.state() == {"last": "m", "after": "d", "missing": ["k"]}
    assert handed(1) == {"last": "m", "after": "m", "missing": []}
    assert handed(2) == {"last": "n", "after": "n", "missing": []}


def test_the_window_stays_small_behind_what_never_comes():
    progress = Progress()
    window = Window(progress, None)
    for i in range(20_000):
        number = window.add(f"id-{i}")
        assert number == i
        if i > 1:
            assert window.state()["last"] == f"id-{i - 1 if i % 2_000 != 1 else i - 2}"
        if i % 2_000:
            progress.add(i, i + 1)
        if i % 97 == 0:
            assert len(window._records) < 3000
    state = window.state()
    assert state == {"last": "id-19999", "after": None, "missing": [f"id-{i}" for i in range(0, 20_000, 2_000)]}
    assert [list(gap) for gap in gaps(progress.ranges(), 4_000)] == [[0, 1], [2_000, 2_001]]
