"""What is made of the declared keys: the JSON schema, the tables of the docs. Skipped where the package jsonschema is not installed."""

import ast
import json
import pathlib
import pydoc
import re
import subprocess
import sys
import warnings

import pytest

from datago import DatagoClient, sources
from datago import config as configuration
from datago.checks import REQUIRED
from datago.cli import main
from datago.keys import keys_of
from datago.schema import config_schema
from datago.settings import ImageSettings, ResizedCrop, Settings

ROOT = pathlib.Path(__file__).parent.parent
GOOD = {
    "db": {"sources": "a", "page_size": 10},
    "file": {"root_path": "/pictures"},
    "webdataset": {"url": ["a.tar", "http://h/{0..3}.tar"]},
}


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(config_schema())
    return jsonschema.Draft202012Validator(config_schema())


def parses(config):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            configuration.parse(config)
    except ValueError:
        return False
    return True


def literals(program):
    """The configs that a program has as literals."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Dict):
            try:
                found = ast.literal_eval(node)
            except (TypeError, ValueError):
                continue
            if "source_config" in found:
                yield found


def examples():
    """The configs of the pages, of the tests and of the corpus of tests/fuzz; many of the latter are wrong."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for kind, text in re.findall(r"^```(json|python)\n(.*?)^```$", page.read_text(), re.M | re.S):
            yield from [json.loads(text)] if kind == "json" else literals(text)
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        yield from literals(path.read_text())
    for path in (ROOT / "tests" / "fuzz" / "corpus_config").glob("*.json"):
        yield json.loads(path.read_text())


def test_what_parses_is_valid(validator):
    """And so what is not valid does not parse: the schema is no stricter than the checker."""
    configs = [*examples(), *({"source_type": name, "source_config": source} for name, source in GOOD.items())]
    good = [config for config in configs if isinstance(config, dict) and parses(config)]
    assert len(good) >= 20
    for config in good:
        assert not [*validator.iter_errors(config)], config


def test_the_default_source_type_is_that_of_the_schema(validator):
    for top in ({}, {"source_type": None}):
        assert validator.is_valid({**top, "source_config": GOOD["db"]}) and parses({**top, "source_config": GOOD["db"]})
        assert not validator.is_valid({**top, "source_config": GOOD["file"]}) and not parses({**top, "source_config": GOOD["file"]})
    assert not validator.is_valid({"source_type": "folder", "source_config": {}})


def placed():
    """(name of the place, a function of a key and a value that gives a config with it there, the keys of the place)"""

    def at(*path, **top):
        def config(key, value):
            found = {"source_type": "file", "source_config": dict(GOOD["file"]), **json.loads(json.dumps(top))}
            inner = found
            for name in path:
                inner = inner.setdefault(name, {})
            inner[key] = value
            return found

        return config

    yield "config", at(), keys_of(Settings)
    yield "image_config", at("image_config"), keys_of(ImageSettings)
    resized = {"random_resized_crop": {"size": 8}}
    yield "random_resized_crop", at("image_config", "random_resized_crop", image_config=resized), keys_of(ResizedCrop)
    for name, source in GOOD.items():
        yield name, at("source_config", source_type=name, source_config=source), keys_of(sources.source_type(name).settings)


WRONG = [{"a": 1}, [], -7, 10**30, True, "\0", 0.5, [[]], ""]
EVERY_KEY = [pytest.param(config, name, key, id=f"{place}.{name}") for place, config, keys in placed() for name, key in keys.items()]


@pytest.mark.parametrize(("config", "name", "key"), EVERY_KEY)
def test_a_wrong_value_of_each_key_is_refused_by_both(validator, config, name, key):
    refused = 0
    for value in WRONG:
        valid = validator.is_valid(config(name, value))
        assert valid or not parses(config(name, value)), f"the schema refuses {value!r}, which parses"
        refused += not valid
    assert refused >= 1
    if name != "source_type":  # another one than its default has other keys
        assert validator.is_valid(config(name, None)) == parses(config(name, None)) == (key.default is not REQUIRED)
    if key.default is REQUIRED:
        missing = config(name, None)
        for section in (missing, missing.get("source_config") or {}, (missing.get("image_config") or {}).get("random_resized_crop") or {}):
            if section.get(name, 0) is None:
                del section[name]
        assert not validator.is_valid(missing) and not parses(missing)


def test_what_is_shipped_and_what_the_docs_say_are_what_the_keys_say():
    done = subprocess.run([sys.executable, ROOT / "tools" / "config_docs.py", "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_check_prints_the_schema(capsys):
    assert main(["check", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((ROOT / "datago" / "config.schema.json").read_text())
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert printed["$defs"]["file"]["properties"]["root_path"]["description"].startswith("A folder")
    assert main(["check"]) == 1 and "CONFIG: missing" in capsys.readouterr().err


def test_every_key_is_explained_in_one_sentence():
    for place, _, keys in placed():
        for name, key in keys.items():
            assert key.doc.endswith(".") and len(key.doc) < 300, f"{place}.{name}"


def test_help_has_every_key():
    said = pydoc.render_doc(DatagoClient, renderer=pydoc.plaintext)
    lines = {line.strip(" |") for line in said.splitlines()}
    assert any(line.startswith("Streams decoded samples") for line in lines)
    for place, _, keys in placed():
        assert any(line.startswith("Keys of ") and place in line for line in lines), place
        for name in keys:
            assert any(line.startswith(f"{name}: ") for line in lines), f"{place}.{name}"
    assert "limit: Good samples after which the stream ends; failures do not count. (default: all)" in lines
