"""What type checkers see: the stubs say what the compiled modules have, and users' code gets the right types."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy: pip install --group lint"),
]
# What Cython adds to classes and modules, what object has, and constructors: those in `__cinit__` only the stubs can tell.
HIDDEN = r"""
datago\.[\w.]+\._\w+(\.\w+)?\.__(init|reduce|setstate|test|pyx_capi|pyx_vtable|reduce_cython|setstate_cython)__
datago\.engine\._payload\.ImagePayload\.__call__
"""


def run(*command, cwd):
    done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True, timeout=110, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def compiled(suffix):
    paths = (ROOT / "datago").rglob(f"*.{suffix}")
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)


def test_stubs_say_what_the_modules_have(tmp_path):
    modules = compiled("pyx")
    assert modules == compiled("pyi")
    (tmp_path / "allow").write_text(HIDDEN)
    status, said = run(
        "mypy.stubtest",
        *modules,
        "--allowlist",
        tmp_path / "allow",
        "--ignore-disjoint-bases",
        "--mypy-config-file",
        ROOT / "pyproject.toml",
        cwd=ROOT,
    )
    assert status == 0, said


def test_the_package_and_the_examples():
    status, said = run("mypy", cwd=ROOT)
    assert status == 0, said


# Lines that are wrong have mypy's name for that behind them.
USERS = """
from collections.abc import Iterator
from typing import Any, assert_type
import PIL.Image
from numpy import uint8, uint16
from numpy.typing import NDArray
from datago import Batch, DatagoBatchDataset, DatagoClient, DatagoIterDataset, Failure, Sample, SampleDict, SampleError
from datago import aspect_buckets, initialize_logging

def on_error(failure: Failure) -> None:
    assert_type(failure.reason, str)

with DatagoClient({"source_type": "file", "source_config": {"root_path": "."}, "on_error": on_error}) as client:
    for sample in client:
        assert_type(sample, Sample)
        assert_type(sample.image.to_numpy_array(), NDArray[uint8 | uint16])
        assert_type(sample.image.to_pil_image(), PIL.Image.Image)
        assert_type(sample.masks["seg"].size, tuple[int, int])
        assert_type(bytes(sample.image.data) + sample.latents["t5"].data, bytes)
    assert_type(client.get_sample(timeout=1), Sample | None)
    assert_type(client.get_sample_auto_convert(), SampleDict | None)
    converted = client.get_sample_auto_convert()
    if converted is not None:
        assert_type(converted["image"], PIL.Image.Image | None)
        assert_type(converted["latents"]["t5"]["data"], bytes)
        converted["picture"]  # typeddict-item
    client.load_state_dict([client.state_dict()])
    assert_type(client.count(), int | None)
    client.get_sample().image  # union-attr
    client.get_sample(timeout="soon")  # arg-type
    client.get_samples()  # attr-defined
DatagoClient(7)  # arg-type
assert_type(aspect_buckets(512, 32, 0.5, 2), list[tuple[int, int]])
assert_type(initialize_logging("info"), bool)
batches = DatagoBatchDataset({}, batch_size=8, dtype="float32", mean=0.5, std=[0.2, 0.2, 0.2], classes="folder")
assert_type(batches, DatagoBatchDataset)
assert_type(len(batches), int)
for batch in batches:
    assert_type(batch, Batch)
    assert_type(batch["original_size"], list[tuple[int, int]])
    batch["images"]  # typeddict-item
DatagoBatchDataset({}, batch_size=8, layout="HWC")  # arg-type
try:
    assert_type(iter(DatagoIterDataset("{}", return_python_types=False)), Iterator[Any])
except SampleError as error:
    assert_type(error.name, str)
"""
AS_INSTALLED = f"""
[mypy]
mypy_path = {ROOT}
[mypy-datago.*]
follow_imports = silent
[mypy-torch.*]
follow_imports = skip
"""


def test_users_code(tmp_path):
    (tmp_path / "user.py").write_text(USERS)
    (tmp_path / "mypy.ini").write_text(AS_INSTALLED)
    _, said = run("mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", "user.py", cwd=tmp_path)
    wanted = [(str(number), line.partition("  # ")[2]) for number, line in enumerate(USERS.splitlines(), 1) if "  # " in line]
    assert re.findall(r"user.py:(\d+): error: .*\[([\w-]+)\]", said) == wanted, said
    assert f"Found {len(wanted)} errors in 1 file" in said
