"""Memory that is refused, one allocation after the other: each pass ends by MemoryError or with failures that say so, none by a signal,
by a hang or in silence."""

import importlib.util
import json
import subprocess
import sys

import album
import pytest
from album import DB, FILE, HTTP, TAR
from processes import ENVIRONMENT, HERE, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library for glibc"),
]


@pytest.mark.parametrize("column, size, late, how, first, behind, width, step", [
    (FILE, 4, 0, "python", 0, 200, 1, 1),
    (FILE, 4, 1, "python", 0, 100, 1, 1),
    (FILE, 4, 0, "python", 0, 200, 25, 1),
    (FILE, 0, 0, "python", 100, 200, 1, 1),
    (TAR, 4, 0, "python", 100, 300, 2, 1),
    (FILE, 4, 0, "native", 0, -1, 1, 1),
    (FILE, 0, 0, "native", 0, -1, 10, 3),
    (TAR, 0, 0, "native", 0, -1, 1, 1),
    (HTTP, 4, 0, "native", 0, -1, 1, 1),
    (DB, 0, 0, "native", 0, -1, 1, 1),
])  # fmt: skip
def test_memory_is_short(tmp_path, column, size, late, how, first, behind, width, step):
    if how == "python" and importlib.util.find_spec("_testcapi") is None:
        pytest.skip("needs _testcapi")
    environment = {**ENVIRONMENT, **({"LD_PRELOAD": str(library("malloc"))} if how == "native" else {})}
    with album.source(column, tmp_path, album.pictures()) as config:
        if size:
            config["image_config"] = {"random_resized_crop": 16}
        command = [sys.executable, str(HERE / "short.py"), json.dumps(config), *map(str, (size, late, how, first, behind, width, step))]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-1500:]
    found = json.loads(done.stdout)
    ends, passes = found["ends"], sum(found["ends"].values())
    assert passes == behind - first if behind > 0 else found["refused"] == passes - 1 > 30
    assert ends.get("MemoryError", 0) + ends.get("SourceError", 0) > 0, ends
