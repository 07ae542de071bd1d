"""Memory that is refused, one allocation after the other: each pass ends by MemoryError or with failures that say so, none by a signal,
by a hang or in silence."""

import importlib.util
import json
import subprocess
import sys

import album
import pytest
from album import DB, FILE, TAR
from processes import ENVIRONMENT, HERE, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library for glibc"),
]


@pytest.mark.parametrize("column, size, late, how, first, behind, width", [
    (FILE, 4, 0, "python", 0, 200, 1),
    (FILE, 4, 1, "python", 0, 100, 1),
    (FILE, 4, 0, "python", 0, 200, 25),
    (FILE, 0, 0, "python", 100, 200, 1),
    (TAR, 4, 0, "python", 100, 300, 2),
    (FILE, 4, 0, "native", 0, 150, 1),
    (FILE, 0, 0, "native", 0, 40, 10),
    (TAR, 0, 0, "native", 0, 100, 1),
    (DB, 0, 0, "native", 0, 60, 1),
])  # fmt: skip
def test_memory_is_short(tmp_path, column, size, late, how, first, behind, width):
    if how == "python" and importlib.util.find_spec("_testcapi") is None:
        pytest.skip("needs _testcapi")
    environment = {**ENVIRONMENT, **({"LD_PRELOAD": str(library("malloc"))} if how == "native" else {})}
    with album.source(column, tmp_path, album.pictures()) as config:
        if size:
            config["image_config"] = {"random_resized_crop": 16}
        command = [sys.executable, str(HERE / "short.py"), json.dumps(config), *map(str, (size, late, how, first, behind, width))]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-1500:]
    ends = json.loads(done.stdout)
    assert sum(ends.values()) == behind - first and ends.get("MemoryError", 0) + ends.get("SourceError", 0) > 0
