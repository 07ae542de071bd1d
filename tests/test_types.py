"""What type checkers see: the stubs say what the compiled modules have, and users' code gets the right types."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy: pip install --group lint"),
]
# What Cython adds, what object has, and constructors: a runtime without `__init__` has a `__cinit__`, which only the stub can tell.
HIDDEN = r"""
datago\._\w+\.__(test|pyx_capi)__
datago\._\w+\.\w+\.__(init|reduce|setstate|reduce_cython|setstate_cython|pyx_vtable)__
"""


def run(*command, cwd):
    done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True, timeout=110, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def test_stubs_say_what_the_modules_have(tmp_path):
    modules = sorted(f"datago.{path.stem}" for path in (ROOT / "datago").glob("*.pyx"))
    assert modules == sorted(f"datago.{path.stem}" for path in (ROOT / "datago").glob("*.pyi"))
    (tmp_path / "allow").write_text(HIDDEN)
    status, said = run("mypy.stubtest", *modules, "--allowlist", tmp_path / "allow", "--ignore-unused-allowlist",
                       "--mypy-config-file", ROOT / "pyproject.toml", cwd=ROOT)
    assert status == 0, said


def test_the_package_and_the_examples():
    status, said = run("mypy", cwd=ROOT)
    assert status == 0, said


USER = """
from datago import DatagoBatchDataset, DatagoClient, DatagoIterDataset, Failure, SampleError, aspect_buckets, initialize_logging

def on_error(failure: Failure) -> None:
    reveal_type(failure.reason)

with DatagoClient({"source_type": "file", "source_config": {"root_path": "."}, "on_error": on_error}) as client:
    reveal_type(client)
    for sample in client:
        reveal_type(sample)
        reveal_type(sample.image.to_numpy_array())
        reveal_type(sample.image.to_pil_image())
        reveal_type(sample.image.size)
        reveal_type(sample.masks["seg"].data)
        reveal_type(sample.latents["t5"].data)
    reveal_type(client.get_sample(timeout=1))
    reveal_type(client.get_sample_auto_convert())
    reveal_type(client.state_dict())
    reveal_type(client.count())
reveal_type(aspect_buckets(512, 32, 0.5, 2))
reveal_type(initialize_logging("info"))
batches = DatagoBatchDataset({}, batch_size=8, dtype="float32", mean=0.5, std=[0.2, 0.2, 0.2], classes="folder")
reveal_type(batches)
reveal_type(len(batches))
try:
    samples = iter(DatagoIterDataset("{}", return_python_types=False))
except SampleError as error:
    reveal_type(error.name)
"""
KNOWN = """str
DatagoClient
Sample
numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.unsignedinteger[numpy._typing._nbit_base._8Bit] | numpy.unsignedinteger[numpy._typing._nbit_base._16Bit]]]
Image.Image
tuple[int, int]
Buffer
bytes
Sample | None
dict[str, Any] | None
dict[str, Any]
int | None
list[tuple[int, int]]
bool
DatagoBatchDataset
int
str"""
WRONG = """
from datago import DatagoBatchDataset, DatagoClient
client = DatagoClient(7)
client.get_sample(timeout="soon")
client.get_sample().image
client.no_such_thing()
DatagoBatchDataset({}, batch_size=8, layout="HWC")
"""


def test_users_code(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\nfollow_imports_for_stubs = True\n[mypy-torch.*]\nfollow_imports = skip\nignore_missing_imports = True\n")
    status, said = run("mypy", "--strict", "user.py", cwd=tmp_path)
    print(said)
    assert status == 0
    status, said = run("mypy", "wrong.py", cwd=tmp_path)
    print(said)
    assert 0
