"""The C tests of src_c: plain, under ASAN + UBSAN, and under TSAN."""

import os
import pathlib
import shutil
import subprocess

import pytest

FOLDER = pathlib.Path(__file__).parent / "c"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize("flavour", ["plain", *(pytest.param(name, marks=pytest.mark.sanitizer) for name in ("asan", "tsan"))])
def test_c(flavour):
    done = subprocess.run(["make", f"-j{os.cpu_count()}", "-C", FOLDER, flavour], capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count(" checks held") == len(list(FOLDER.glob("test_*.c")))
