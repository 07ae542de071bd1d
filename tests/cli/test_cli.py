"""`datago bench` and `datago check`, as their users start them; test_serve.py has `serve`."""

import contextlib
import functools
import http.server
import importlib.metadata
import io
import json
import os
import pty
import re
import subprocess
import sys
import tarfile
import threading

import numpy
import pytest
from conftest import jpeg
from serving import TOKEN, make_album, serve

import datago as datago_module
from datago.cli import main, measure
from datago.cli.bench import STAGES, _text, bottleneck

CROP = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}


def datago(*arguments, status=0, **environment):
    """(stdout, stderr) of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "datago", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def check(config, *options, tmp_path, **environment):
    """The output of `check --json` for a config. It runs in this process, since starting one takes far longer than the check."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        assert main(["check", str(tmp_path / "config.json"), "--json", *map(str, options)]) == 0
    assert err.getvalue() == "" and out.getvalue().count("\n") == 1
    return json.loads(out.getvalue())


@pytest.fixture
def shards(tmp_path):
    """Three shards of 4, 3 and 2 samples, and their index."""
    for number, count in enumerate((4, 3, 2)):
        with tarfile.open(tmp_path / f"s-{number}.tar", "w") as archive:
            for sample in range(count):
                path = tmp_path / f"{number}{sample}.jpg"
                path.write_bytes(jpeg(40, 30, seed=sample))
                archive.add(path, path.name)
                path.unlink()
    (tmp_path / "index.json").write_text('{"s-0.tar": 4, "s-1.tar": 3, "s-2.tar": 2}')
    return tmp_path / "s-{0..2}.tar"


def test_a_folder_in_words(folder, tmp_path):
    (folder / ".hidden.jpg").write_bytes(b"")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "source_type": "file", "source_config": {"root_path": str(folder), "world_size": 3}, "seed": 7, "uneven": "drop", "limit": 5,
        "limitt": 3, "image_config": {**CROP, "image_to_rgb8": True, "horizontal_flip": 0.5},
    }))  # fmt: skip
    out, err = datago("check", config, "--ranks")
    assert (
        out
        == f"""\
Images below {str(folder)!r}.
Samples come shuffled by seed 7, epoch 0, roughly: as threads are done.
This is rank 0 of 3: as many on each, the rest dropped.
A pass ends after 5 good samples.
Each picture is cropped about the centre and resized to the bucket nearest to its shape (lanczos, fast).
50% of them are mirrored.
All become 8-bit RGB.
What fails is counted and passed over.
3 buckets (width x height): 48 x 80, 64 x 64, 80 x 48
Found: 20 samples, 1 passed over (hidden).
rank 0 of 3: 5 samples
rank 1 of 3: 5 samples
rank 2 of 3: 5 samples
"""
    )
    assert "warning: limitt: unknown key, ignored; did you mean 'limit'?\n" in err


def test_ranks_of_a_folder(folder, tmp_path):
    config = {"source_type": "file", "source_config": {"root_path": str(folder)}}
    found = check(config, "--ranks", 3, tmp_path=tmp_path)
    assert [row["samples"] for row in found["ranks"]] == [7, 7, 6]
    assert [row["samples"] for row in check({**config, "uneven": "pad"}, "--ranks", 3, tmp_path=tmp_path)["ranks"]] == [7, 7, 7]
    assert found["found"] == {"samples": 20, "unreadable folders": 0, "skipped": {}} and found["buckets"] == []
    assert check(config, tmp_path=tmp_path)["ranks"] == [{"rank": 0, "world_size": 1, "samples": 20, "delivers": 20}]


def test_shards_are_named_and_with_an_index_counted(shards, tmp_path):
    config = {"source_type": "webdataset", "source_config": {"url": str(shards)}}
    found = check(config, "--ranks", 2, tmp_path=tmp_path)
    assert found["found"] == {"shards": 3, "samples": None}
    assert [(row["shards"], row["samples"], row["delivers"]) for row in found["ranks"]] == [(2, None, None), (1, None, None)]
    config["source_config"]["shard_index"] = str(tmp_path / "index.json")
    found = check(config, "--ranks", 2, tmp_path=tmp_path)
    assert found["found"] == {"shards": 3, "samples": 9} and [row["samples"] for row in found["ranks"]] == [6, 3]
    found = check(config, "--ranks", 4, tmp_path=tmp_path)  # fewer shards than ranks
    assert [(row["shards"], row["samples"]) for row in found["ranks"]] == [(3, 3), (3, 2), (3, 2), (3, 2)]
    assert all(row["shared"] for row in found["ranks"])
    found = check({**config, "uneven": "drop"}, "--ranks", 2, tmp_path=tmp_path)
    assert [row["samples"] for row in found["ranks"]] == [3, 3]


@pytest.mark.slow
def test_shards_that_are_not_there_are_named(shards, tmp_path):
    folder = tmp_path / "a.tar"
    folder.mkdir()
    os.symlink("gone.tar", tmp_path / "link.tar")
    os.mkfifo(tmp_path / "pipe.tar")
    urls = {
        str(tmp_path / "{000000..000004}.tar"): ["5 of 5 shards", f"{tmp_path}/000000.tar: No such file or directory", "; and 2 more"],
        str(tmp_path / "s-{0..3}.tar"): ["1 of 4 shards", f"{tmp_path}/s-3.tar: No such file"],
        str(tmp_path / "none.tar"): ["1 of 1 shards", f"{tmp_path}/none.tar: No such file"],
        str(tmp_path / "link.tar"): ["1 of 1 shards", f"{tmp_path}/link.tar: No such file"],
        f"file://{tmp_path}/none.tar": ["1 of 1 shards", f"{tmp_path}/none.tar: No such file"],
        str(tmp_path / "s-0.tar" / "b.tar"): ["Not a directory"],
        str(tmp_path / "{a,s-0}.tar"): ["1 of 2 shards", f"{folder}: a folder"],
    }
    for url, wanted in urls.items():
        out, err = datago("check", url, status=1)
        assert out == "" and all(text in err.splitlines()[-1] for text in wanted), err
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"source_type": "webdataset", "source_config": {"url": [str(shards), str(tmp_path / "none.tar")]}}))
    out, err = datago("check", path, "--json", status=1)
    assert out == "" and err == f"check: url: 1 of 4 shards cannot be read: {tmp_path}/none.tar: No such file or directory\n"
    assert "Found: 4 shards" in datago("check", tmp_path / "{s-{0..2},pipe}.tar")[0]  # a pipe is there, and not read
    assert datago("check", tmp_path / "none", status=1)[1] == f"check: No such file or directory: '{tmp_path}/none'\n"


@pytest.mark.network
def test_shards_behind_urls_are_looked_at(shards, tmp_path):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        config = {"source_type": "webdataset", "source_config": {"url": base + "/s-{0..2}.tar"}}
        assert check(config, tmp_path=tmp_path)["found"] == {"shards": 3, "samples": None}
        _, err = datago("check", base + "/s-{0..3}.tar?key=s3cr3t", status=1)
        assert err.splitlines()[-1].startswith(f"check: url: 1 of 4 shards cannot be read: {base}/s-3.tar?…: ") and " 404 " in f"{err} "
        config["source_config"]["url"] = [f"{base}/s-0.tar?{number}" for number in range(100)]
        assert check(config, tmp_path=tmp_path)["found"] == {"shards": 100, "looked at": 64, "samples": None}
        config["source_config"]["url"][-1] = f"{base}/s-9.tar"
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert "1 of 64 shards cannot be read" in datago("check", tmp_path / "config.json", "--json", status=1)[1]
    finally:
        server.shutdown()
        server.server_close()


def test_versions():
    out, err = datago("--version")
    version = importlib.metadata.version("datago")
    assert err == "" and out.count("\n") == 2 and out.startswith(f"datago {version} (") and f" numpy {numpy.__version__}" in out
    libraries = dict(re.findall(r"([\w-]+)[ /]([0-9][\w.]*)", out.splitlines()[1]))
    names = {"libjpeg-turbo": "libjpeg", "libwebp": "libwebp", "zlib": "zlib", "libdeflate": "libdeflate", "libcurl": "libcurl"}
    found = {name: subprocess.run(["pkg-config", "--modversion", wanted], capture_output=True, text=True) for name, wanted in names.items()}
    for name, done in found.items():
        assert name in libraries, out
        assert done.returncode or libraries[name] == done.stdout.strip(), name
    script = (
        "import sys, datago; known = [*sys.modules]; print(datago.__version__, 'importlib.metadata' in known, '__version__' in dir(datago))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30).stdout == f"{version} False True\n"
    with pytest.raises(AttributeError, match="no attribute '__versions__'"):
        datago_module.__versions__


@pytest.mark.network
@pytest.mark.timeout(120)
def test_a_database_counts_with_the_filters(tmp_path):
    album = tmp_path / "album"
    album.mkdir()
    config = {"source_config": {"sources": "local", "page_size": 7, "require_images": True, "tags": "cat", "duplicate_state": 2}}
    with serve(make_album(album), "--json") as server:
        known = {"DATAROOM_API_URL": server.api_url, "DATAROOM_API_KEY": TOKEN}
        found = check(config, tmp_path=tmp_path, **known)
        wanted = [i for i in range(40) if i % 4 == 0 and i % 6 == 2]
        assert found["found"] == {"samples": len(wanted)}
        config["source_config"].pop("duplicate_state")
        found = check(config, "--ranks", 2, tmp_path=tmp_path, **known)
        assert found["found"] == {"samples": 10} == {"samples": sum(row["samples"] for row in found["ranks"])}
        assert found["meaning"][0] == f"A database at {server.api_url}: records with images, 7 a page, sources=local tags=cat."
        out, err = datago("check", tmp_path / "config.json", "--json", "--ranks", 60, status=1, **known)
        assert out == "" and err.startswith("check: count: HTTP 400") and "between 2 and 48" in err and err.count("\n") == 1
        out, _ = datago("bench", tmp_path / "config.json", "--seconds", 0.1, "--json", **known)
        assert {name: row["n"] > 0 for name, row in json.loads(out)["stages"].items()} == dict.fromkeys(STAGES, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "check: config: PATH: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"),
        ('{"source_config": {"sources": "a"}}', "check: source_config.page_size: missing, wanted an integer of at least 1\n"),
        ('{"source_type": "file", "source_config": {"root_path": "/no"}}', "check: root_path: No such file or directory: '/no'\n"),
        ('{"source_type": "webdataset", "source_config": {"url": "/nowhere/*.tar"}}', "check: url /nowhere/*.tar: no shards found\n"),
    ],
)
def test_one_line_and_status_1(text, said, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert datago("check", path, "--json", status=1) == ("", said.replace("PATH", str(path)))
    assert datago("bench", path, "--json", status=1) == ("", said.replace("PATH", str(path)).replace("check:", "bench:"))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--seconds", "nan", "argument --seconds: got 'nan', wanted a number above 0"),
        ("--seconds", "0", "argument --seconds: got '0', wanted a number above 0"),
        ("--image-config", "{x", "argument --image-config: not JSON: Expecting property name"),
        ("--compare", "dali", "argument --compare: got 'dali', wanted torch, webdataset, or both separated by a comma"),
    ],
)
def test_options_say_what_they_want(folder, option, value, said):
    out, err = datago("bench", folder, option, value, status=2)
    assert out == "" and said in err


@pytest.mark.network
def test_what_is_printed_has_no_secret(shards, tmp_path):
    secret = "s3cr3t"
    path = tmp_path / "config.json"
    configs = [
        {"source_config": {"sources": "", "page_size": 5, "api_key": secret, "api_url": f"http://me:{secret}@127.0.0.1:9/?k={secret}"}},
        {"source_type": "webdataset", "source_config": {"url": f"http://127.0.0.1:9/a.tar?k={secret}", "auth_token": secret,
                                                        "shard_index": f"http://127.0.0.1:9/i.json?k={secret}"}},
        {"source_type": "webdataset", "source_config": {"url": f"http://127.0.0.1:9/a.tar?k={secret}", "auth_token": secret}},
    ]  # fmt: skip
    for config in configs:
        path.write_text(json.dumps(config))
        for command in ("check", "bench"):
            out, err = datago(command, path, status=1, DATAGO_MAX_RETRIES="1")
            assert secret not in out + err and ("a.tar?…" in err or config is not configs[2])


@pytest.mark.slow
def test_bench_times_every_stage(folder, shards):
    (folder / "d0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    out, err = datago("bench", folder, "--seconds", 0.1, "--json", "--image-config", json.dumps(CROP), "--pil")
    found = json.loads(out)
    assert err == "" and out.count("\n") == 1 and list(found["stages"]) == list(STAGES)
    assert found["stages"]["stream"]["failed"] > 0  # in one of the passes, if not in the last one, which is broken off
    for row in found["stages"].values():
        assert row["n"] > 0 and row["images/s"] > 0 and row["CPU ms"] >= 0 and row["first ms"] > 0 and row["MB"] > 5
    assert found["threads"] >= 1 and found["bottleneck"]["stage"] in STAGES[:-1] and found["compare"] == {}
    found["stages"]["read"]["warning"] = "its rate rests on 0.05 s only"
    assert "\nwarning: read: its rate rests on 0.05 s only\n" in _text(found)
    out, err = datago("bench", shards, "--seconds", 0.1, "--compare", "torch")
    assert "list (1 of 7)\n" in err
    assert "torch      not compared: it is compared for source_type 'file' only\n" in out and "  shards/s\n" in out


def test_a_rate_of_less_than_a_second_has_a_warning(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    for step, seconds, warns in ((0.25, 0.5, True), (0.5, 1.0, False)):
        meter = measure.Meter(60)
        for _ in range(3):  # the first does not count
            now[0] += step
            meter.add()
        row = meter.row()
        assert (row["seconds"], row["images/s"], "warning" in row) == (seconds, 2 / seconds, warns)
        assert not warns or row["warning"].startswith("its rate rests on 0.50 s only")


@pytest.mark.slow
def test_bench_compares_where_the_packages_are(folder, shards):
    pytest.importorskip("torch", reason="torch is not installed")
    out, _ = datago("bench", folder, "--seconds", 0.1, "--compare", "torch", "--json")
    assert json.loads(out)["compare"]["torch"]["n"] > 0


@pytest.mark.slow
def test_bench_says_which_package_is_missing(folder, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise ImportError('no torch here')")
    out, _ = datago("bench", folder, "--seconds", 0.1, "--compare", "torch", PYTHONPATH=f"{blocked}:{os.environ.get('PYTHONPATH', '')}")
    assert "torch      not compared: no torch here\n" in out


def test_the_bottleneck():
    def row(rate, cost):
        return {"n": 1, "images/s": rate, "CPU ms": cost}

    # Two CPUs: the stream takes 2.5 ms of CPU, so 800 images/s at most; decoding is slowest alone.
    rows = {"list": row(1e5, 0.0), "read": row(5000, 0.25), "decode": row(900, 2.0), "hand over": row(1e5, 0.01), "stream": row(700, 2.5)}
    assert bottleneck(rows, 2, "file") == {"stage": "decode", "next": "read", "twice": 2000 / 1.5 / 800, "most": 2000 / 0.5 / 800}
    # A slow disk: no CPU is short, and twice as fast is twice as many, up to what decoding gives.
    rows["read"] = row(100, 0.25)
    assert bottleneck(rows, 2, "file") == {"stage": "read", "next": "decode", "twice": 2.0, "most": 2000 / 2.25 / 100}
    # How fast shards are listed is no rate of samples.
    rows["list"] = row(1, 1000)
    assert bottleneck(rows, 2, "webdataset")["stage"] == "read" and bottleneck(rows, 2, "db")["stage"] == "list"


def test_progress_on_a_terminal(folder):
    pytest.importorskip("rich", reason="rich is not installed")
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "datago", "bench", folder, "--seconds", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, env={**os.environ, "TERM": "xterm"})
    os.close(child)
    seen = b""
    try:
        while part := os.read(parent, 4096):
            seen += part
    except OSError:  # how Linux says that the other side is closed
        pass
    out, _ = process.communicate(timeout=30)
    os.close(parent)
    assert process.returncode == 0 and b"bottleneck" in out and b"bottleneck" not in seen
    assert b"decode" in seen and b"0/6" in seen
