"""Secrets are told to nobody, and nothing in the data is run or becomes a path."""

import io
import json
import logging
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import tarfile
import traceback
import warnings
from urllib.parse import urlsplit

import numpy
import pytest
from conftest import jpeg, saved
from faulty import answer, cut, faulty
from tars import tar

import datago
from datago import DatagoClient, DatagoIterDataset, SourceError

WORD = "hunter2"
PACKAGE = pathlib.Path(datago.__file__).parent


def told(config, caplog):
    """Everything that a run says, in all ways that it has."""
    said, samples = [], []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            client = DatagoClient({**config, "log_period": 0.05, "on_error": lambda failure: said.append(repr(failure))})
            said += [repr(client), repr(vars(client)), repr(client._config), repr(DatagoIterDataset(config))]
            said.append(json.dumps(client.state_dict()))
            while (sample := client.get_sample(timeout=20)) is not None:
                samples.append(sample)
            said += [repr(sample) + sample.source + sample.attributes for sample in samples]
            said.append(json.dumps(client.state_dict()))
        except (SourceError, ValueError) as error:
            said += traceback.format_exception(error)
        said += [json.dumps(client.stats()), client.metrics(), repr(vars(client._pass)) if client._pass else ""]
        client.stop()
    said += [str(warning.message) for warning in warned]
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records if record.name.startswith("datago")]
    return samples, "\n".join(said)


BODY = tar([("a.jpg", jpeg()), ("a.txt", b"x")])
PAGE = {"results": [{"id": "a", "source": "s", "attributes": {}, "image_direct_url": f"/image?X-Signature={WORD}"}], "next": None}


@pytest.mark.network
@pytest.mark.parametrize(
    "behaviour",
    [
        lambda good: good,
        lambda good: [answer(f"no {WORD}".encode(), status="503 No"), cut(good[:60]), good],
        lambda good: answer(json.dumps({"detail": f"bad token {WORD}"}).encode(), status="403 No"),
        lambda good: answer(status="302 Found", Location=f"http://127.0.0.1:1/x?{WORD}"),
        lambda good: answer(status="302 Found", Location=f"ftp://u:{WORD}@h/{WORD[::-1]}?{WORD}"),
        lambda good: cut(answer(b"", length=f"{WORD}")),
        lambda good: answer(f"<html><head></head><body>{WORD}".encode()),
    ],
)
@pytest.mark.parametrize("source", ["shards", "listing", "page", "image"])
def test_secrets_are_told_to_nobody(monkeypatch, caplog, tmp_path, source, behaviour):
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "3")
    caplog.set_level(1)
    good = {"shards": answer(BODY), "listing": answer(b'{"items": []}'), "page": answer(json.dumps(PAGE).encode()), "image": answer(jpeg())}
    with faulty({"/images/": good["page"], "/image": good["image"], "/a.tar": good["shards"], "/o": good["listing"]}) as server:
        path = {"shards": "/a.tar", "listing": "/o", "page": "/images/", "image": "/image"}[source]
        server.answers[path] = behaviour(good[source])
        base = server.url.replace("://", f"://user:{WORD}@")
        if source in ("shards", "listing"):
            keys = {"url": [f"{base}{path}?sig={WORD}#{WORD}"], "auth_token": WORD, "cache_dir": str(tmp_path), "timeout": 2}
            config = {"source_type": "webdataset", "source_config": keys}
        else:
            keys = {"api_url": server.url, "api_key": WORD, "sources": "", "page_size": 5, "require_images": True, "read_timeout": 2}
            config = {"source_config": keys}
        samples, said = told(config, caplog)
        assert WORD in repr(server.requests)  # it was sent, to whom it is for
    assert WORD not in said, next(line for line in said.splitlines() if WORD in line)
    assert "127.0.0.1" in said
    assert WORD not in repr(os.listdir(tmp_path))


@pytest.mark.parametrize(
    "value", [[WORD], {"a": WORD}, 5, f"http://u:{WORD}@h:99999/?{WORD}", f"http://u:{WORD}@h/*?{WORD}", [f"s3://u:{WORD}@b/*{{", 7]]
)
@pytest.mark.parametrize("key", ["api_key", "auth_token", "url", "api_url"])
def test_wrong_values_are_not_repeated(key, value):
    source = {"source_type": "webdataset", "source_config": {"url": "/a.tar", key: value}}
    if key.startswith("api"):
        source = {"source_config": {"sources": "", "page_size": 1, "api_url": "http://h", "api_key": "k", key: value}}
    with pytest.raises(ValueError) as caught:
        client = DatagoClient(source)
        assert WORD not in repr(client._config) or value == [WORD]  # a path
        with client:  # the exception that is caught keeps this frame, and with it the client
            raise ValueError("the rest is not wrong")
    if key in ("api_key", "auth_token") or isinstance(value, str):
        assert WORD not in "".join(traceback.format_exception(caught.value))


def test_a_pickle_has_what_a_client_needs_and_no_more(monkeypatch):
    """The config's own secrets travel along; those of the environment do not."""
    monkeypatch.setenv("DATAROOM_API_KEY", WORD)
    config = {"source_config": {"sources": "", "page_size": 1, "api_url": "http://h"}}
    assert WORD.encode() not in pickle.dumps(DatagoClient(config))
    config["source_config"]["api_key"] = "mine"
    twin = pickle.loads(pickle.dumps(DatagoClient(config)))
    assert twin._config.source_config.api_key == "mine" and "mine" not in repr(twin._config)


def test_no_command_line_has_them(tmp_path):
    """A client starts no process at all."""
    (tmp_path / "a.jpg").write_bytes(jpeg())
    script = (
        "import sys; seen = []\n"
        "sys.addaudithook(lambda event, _: seen.append(event) if event in ('subprocess.Popen', 'os.system', 'os.exec', 'os.fork', "
        "'os.posix_spawn', 'pickle.find_class', 'exec.eval') else None)\n"
        "import datago; print(sum(1 for _ in datago.DatagoClient({'source_type': 'file', 'source_config': {'root_path': sys.argv[1]}})))\n"
        "print(seen)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "1\n[]\n"


def test_nothing_in_the_data_is_run():
    words = (
        r"\b(pickle\.loads?|marshal|eval|exec|os\.system|os\.popen|subprocess|shell=True|allow_pickle|numpy\.load|np\.load"
        r"|yaml\.(?!safe_load\b|YAMLError\b)\w+|from yaml)\b"
    )
    found = {
        str(path.relative_to(PACKAGE)): set(re.findall(words, path.read_text())) for path in PACKAGE.rglob("*.py*") if path.suffix != ".pyc"
    }
    # `datago bench` times each stage in a process of its own: a list of arguments, no shell, and the config goes by stdin.
    # A config in YAML is read by safe_load, which makes plain values only.
    assert {name: words for name, words in found.items() if words} == {"cli/bench.py": {"subprocess"}}


def test_a_config_in_yaml_makes_plain_values_only(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(f"source_type: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(ValueError, match="not YAML: could not determine a constructor for the tag"):
        DatagoClient(tmp_path / "a.yaml")
    assert not (tmp_path / "made").exists()


def test_commands_as_urls_are_refused_by_name(tmp_path):
    proof = tmp_path / "proof"
    for url in (f"pipe:touch {proof}", ["/a.tar", f"pipe:touch {proof}; cat x.tar"]):
        with pytest.raises(SourceError, match="pipe: is not supported, datago runs no commands"):
            DatagoClient({"source_type": "webdataset", "source_config": {"url": url}}).start()
    assert not proof.exists()


# The fourth begins with a dot: it is passed over.
EVIL = [
    "../../evil.jpg",
    "/tmp/datago-evil.jpg",
    "a/../../../evil.jpg",
    "..\\evil.jpg",
    "C:\\evil.jpg",
    "~/evil.jpg",
    "$(touch evil).jpg",
    "-rf.jpg",
]


def test_names_in_tars_are_no_paths(tmp_path):
    """Neither read nor written: the interpreter's audit events and the folder itself say so."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in EVIL:
            info = tarfile.TarInfo(name)
            info.size = len(saved(numpy.zeros((4, 4), numpy.uint8)))
            archive.addfile(info, io.BytesIO(saved(numpy.zeros((4, 4), numpy.uint8))))
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "/etc/shadow")):
            info = tarfile.TarInfo("link.jpg")
            info.type, info.linkname = kind, target
            archive.addfile(info)
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "evil.tar").write_bytes(out.getvalue())
    script = (
        "import sys, os; opened = []\n"
        "sys.addaudithook(lambda event, what: opened.append(str(what)) if event in ('open', 'os.mkdir', 'os.rename', 'os.link', "
        "'os.symlink') else None)\n"
        "import datago; client = datago.DatagoClient({'source_type': 'webdataset', 'source_config': {'url': sys.argv[1], "
        "'cache_dir': sys.argv[2]}})\n"
        "for sample in client: print(ascii(sample.id))\n"
        "assert client.stats()['failed'] == 0, client.stats()\n"
        "print([one for one in opened if 'evil' in one.replace('evil.tar', '') or 'passwd' in one or 'shadow' in one])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "evil.tar"), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path / "work" / "deep")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(EVIL) and lines[-1] == "[]", done.stderr + done.stdout
    assert not os.path.exists("/tmp/datago-evil.jpg")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["evil.tar", "work", "work/deep"]


@pytest.mark.network
def test_logging_has_levels_without_secrets_too(caplog):
    with faulty({"/a.tar": answer(BODY)}) as server:
        caplog.set_level(logging.DEBUG, "datago")
        url = f"{server.url}/a.tar?sig={WORD}"
        (sample,) = DatagoClient({"source_type": "webdataset", "source_config": {"url": url, "auth_token": WORD}})
    assert WORD not in caplog.text + sample.source and sample.source.endswith("/a.tar?…")


def test_every_line_of_the_threat_model_has_its_test():
    """SECURITY.md names a test for each of its lines, and each of those is there."""
    tests = pathlib.Path(__file__).parent
    text = (tests.parent / "SECURITY.md").read_text()
    lines = re.findall(r"^\* (.*?)(?=^\* |^\S|\Z)", text, re.M | re.S)
    assert len(lines) == text.count("\n* ") >= 18
    for line in lines:
        _, told, shown = line.partition("*Shown by*")
        names = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
        assert told and names and shown.count("`") == 2 * len(names), line
        for file, name in names:
            assert re.search(rf"^def {name}\(", next(tests.rglob(file)).read_text(), re.M), f"{file}::{name}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.network
def test_serve_listens_to_this_machine_alone(tmp_path):
    """Unless told otherwise; on both ports."""
    from serving import picture, serve

    picture(tmp_path / "a.jpg")
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    with serve(tmp_path) as server:
        for url in (server.api_url, server.media_url):
            port = urlsplit(url).port
            assert urlsplit(url).hostname == "127.0.0.1"
            listening = {line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"}
            assert {local for local in listening if int(local.split(":")[1], 16) == port} == {f"0100007F:{port:04X}"}
            for address in addresses:
                with pytest.raises(OSError), socket.create_connection((address, port), 5):
                    pass
