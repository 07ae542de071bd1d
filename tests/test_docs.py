"""Every code block of README.md and docs/ runs; every link leads somewhere.

All that the blocks read lies below /data/; here that is a folder with a little of everything (`data`), and a server of its pictures is in
the environment. A python block runs as it is, a sh block by bash, a json block is a config that has to give samples, a diff block is
two programs that have to print the same; the one before the change runs where its packages are.
"""

import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest
from conftest import jpeg
from serving import TOKEN, serve

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = [
    pytest.param(kind, text, id=f"{page.name}:{page.read_text()[: found.start()].count(chr(10)) + 1}")
    for page in PAGES
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    for kind, text in [found.groups()]
]
PRINTED = {"sample in client)\n": "12 pictures\n", "captions": "8 pictures, 8 captions\n", "classes": "8 pictures of the classes [0, 1]\n"}
# interpreters that may have what programs need before the change
BEFORE = os.environ.get("DATAGO_BEFORE_PYTHONS", "").split(os.pathsep) + [os.environ.get("DATAGO_REFERENCE_PYTHON", "")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for i in range(12):
        path = root / "pictures" / f"{i % 2}" / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(64 + 8 * i, 80, seed=i))
    for i in range(8):
        for folder in ("train", "val"):
            path = root / "imagenet" / folder / ("cat", "dog")[i % 2] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(96, 80, seed=i))
    (root / "shards").mkdir()
    for number in range(2):
        with tarfile.open(root / "shards" / f"{number:06d}.tar", "w") as archive:
            for i in range(4):
                for name, body in ((f"{i}.jpg", jpeg(64, 48, seed=i)), (f"{i}.json", json.dumps({"caption": f"{number} {i}"}).encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(body)
                    archive.addfile(member, io.BytesIO(body))
    (root / "shards" / "index.json").write_text('{"000000.tar": 4, "000001.tar": 4}')
    return root


@pytest.fixture(scope="module")
def environment(data, tmp_path_factory):
    tools = tmp_path_factory.mktemp("bin")
    (tools / "datago").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m datago "$@"\n')
    (tools / "datago").chmod(0o755)
    with serve(data / "pictures", cache=tmp_path_factory.mktemp("cache")) as server:
        known = {"DATAROOM_API_URL": server.api_url, "DATAROOM_API_KEY": TOKEN, "PATH": f"{tools}:{os.environ['PATH']}"}
        yield {**os.environ, **known, "PYTHONWARNINGS": "error:::datago"}


def run(command, environment, cwd=ROOT):
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


def packages(program):
    """What a program imports besides datago and the standard library."""
    return set(re.findall(r"^(?:import|from) (\w+)", program, re.M)) - {"datago", "json"}


def has(python, names, environment):
    probe = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    return bool(python) and subprocess.run([python, "-c", probe, *names], env=environment, cwd="/", timeout=20).returncode == 0


@pytest.mark.network
@pytest.mark.parametrize(("kind", "text"), BLOCKS)
def test_blocks(kind, text, data, environment, tmp_path):
    text = text.replace("/data/", f"{data}/")
    if kind == "python":
        for package in packages(text) & {"accelerate", "lightning", "torch"}:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
        run([sys.executable, "-c", text], environment)
    elif kind == "sh":
        run(["bash", "-euc", text], environment)
    elif kind == "json":
        script = "import sys; from datago import DatagoClient; print(len(list(DatagoClient(sys.argv[1]))) > 0)"
        assert run([sys.executable, "-c", script, text], environment) == "True\n"
    elif kind == "diff":
        expected = next(printed for key, printed in PRINTED.items() if key in text)
        assert run([sys.executable, "-c", side(text, "+")], environment) == expected
        before = side(text, "-")
        if before_python := interpreter(before, environment):
            assert run([before_python, "-W", "ignore", "-c", before], environment, tmp_path) == expected
    else:
        raise AssertionError(f"what is a block of {kind!r}? ")


def side(diff, sign):
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] in (" ", sign, "\n"))


def interpreter(program, environment):
    """One that can run what stands before a change, or None."""
    if "datago" in program:
        return os.environ.get("DATAGO_REFERENCE_PYTHON")
    return next((python for python in [sys.executable, *BEFORE] if has(python, packages(program), environment)), None)


def test_there_are_blocks_of_each_kind():
    assert {"python", "sh", "json", "diff"} == {param.values[0] for param in BLOCKS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    """Those inside the repository: the file is there, and the heading."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        headings = (
            {
                re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in path.read_text().splitlines()
                if line.startswith("#")
            }
            if anchor
            else set()
        )
        assert not anchor or anchor in headings, (target, anchor)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_are_there(page):
    for name in re.findall(r"`((?:bench|datago|docs|examples|tests|tools)/[\w/]+(?:\.\w+)+)", page.read_text()):
        assert (ROOT / name).exists(), name


def test_the_keys_of_the_config_are_documented():
    from datago.config import source_keys
    from datago.keys import keys_of
    from datago.settings import ImageSettings, Settings

    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for key in {*keys_of(Settings), *keys_of(ImageSettings), *(key for keys in source_keys().values() for key in keys)}:
        assert f"`{key}`" in text, key


def test_the_picture_of_the_buckets_is_what_its_script_draws(tmp_path):
    """Not bit for bit, as the fonts are Pillow's: it runs, and the page has the size and weight of the one that is kept."""
    from PIL import Image

    run([sys.executable, ROOT / "bench" / "buckets.py", tmp_path / "buckets.png"], {**os.environ, "PYTHONPATH": str(ROOT)})
    kept = ROOT / "docs" / "buckets.png"
    assert kept.stat().st_size < 60_000 and (tmp_path / "buckets.png").stat().st_size < 60_000
    with Image.open(kept) as old, Image.open(tmp_path / "buckets.png") as new:
        assert old.size == new.size
