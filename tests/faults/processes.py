"""What can go wrong with the process that reads: each cell is a process of its own."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import album
import numpy
import pytest
from conftest import saved
from reading import LIMIT, pixels_hash

HERE = pathlib.Path(__file__).parent
ANY = album.NAMES
LOCK = threading.Lock()
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)]), **album.LIMITS}  # pytest changes its own

# fault: (what child.py does, how much of it, the names that may be lost meanwhile)
PROCESSES = {
    "1 MB more of memory": ("memory", 1 << 10, ANY),
    "4 MB more of memory": ("memory", 4 << 10, ANY),
    "no memory for one picture": ("memory", 32 << 10, {album.VICTIM}),
    "no descriptor left": ("descriptors", 0, ANY),
    "two descriptors left": ("descriptors", 2, ANY),
    "no descriptor left for 0.3 s": ("descriptors_for_a_while", 300, ANY),
    "no further thread": ("threads", 0, ANY),
    "two further threads": ("threads", 2, ANY),
    "stopped for 1.5 s": ("stopped", 0, set()),
    "the clock jumps ahead": ("clock", 86400, set()),
    "the clock jumps back": ("clock", -86400, set()),
    "a signal every 2 ms": ("signals", 2, set()),
    "no stdin, stdout, stderr": ("streams_closed", 0, set()),
    "no HOME, no TMPDIR": ("nothing", 0, set()),
}
# the same for a cache
CACHES = {
    "files of 1000 bytes at most": ("file_size", 1000),
    "a full disk": ("nothing", 0),
    "a folder that is a file": ("nothing", 0),
}


def process_cell(fault, column, root, wanted):
    action, amount, lost = PROCESSES[fault]
    environment = {"HOME": "/no/such", "TMPDIR": "/no/such"} if fault.startswith("no HOME") else {}
    if action == "clock":
        environment["LD_PRELOAD"] = str(library("clock"))
    files = album.pictures()
    if lost == {album.VICTIM}:  # it has 48 MB of pixels
        pixels = numpy.full((4000, 4000, 3), 90, numpy.uint8)
        files[album.VICTIM], wanted = saved(pixels), {**wanted, album.VICTIM: pixels_hash(pixels)}
    during, after = run(column, root, files, action, amount, environment)
    album.check(during, wanted, lost, error=None if lost is ANY else False)
    assert lost != {album.VICTIM} or during["stats"]["failures"] == {"no_memory": 1}, during["stats"]
    album.check(after, wanted, set(), error=False)
    return during


def cache_cell(fault, column, root, wanted):
    action, amount = CACHES[fault]
    cache, wrapper = root / "cache", []
    if fault == "a full disk":
        cache.mkdir()
        mount = f'mount -t tmpfs -o size=16k none {cache} && exec "$@"'
        wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
        if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
    elif fault == "a folder that is a file":
        cache.write_bytes(b"")
    during, after = run(column, root, album.pictures(), action, amount, {}, cache, wrapper)
    album.check(during, wanted, set(), error=False)
    album.check(after, wanted, set(), error=False)
    return during


def library(name):
    """A C file of this folder as a library to preload, compiled once a session."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        pytest.skip("a library is preloaded: needs a C compiler")
    with LOCK:
        path, source = HERE / "build" / f"{name}.so", HERE / f"{name}.c"
        if not path.exists() or path.stat().st_mtime < source.stat().st_mtime:
            path.parent.mkdir(exist_ok=True)
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


def run(column, root, files, action, amount, environment, cache=None, wrapper=()):
    """What came under the fault, and after it."""
    with album.source(column, root, files, strike=album.slow_victim if action == "stopped" else None) as config:
        if cache:
            config["source_config"]["cache_dir"] = str(cache)
        out = root / "result.json"
        command = [*wrapper, sys.executable, str(HERE / "child.py"), json.dumps(config), action, str(amount), str(out)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment})
        try:
            if action == "stopped":
                assert child.stdout.readline() == "first\n", child.communicate(timeout=LIMIT)
                child.send_signal(signal.SIGSTOP)
                time.sleep(1.5)
                child.send_signal(signal.SIGCONT)
            _, err = child.communicate(timeout=3 * LIMIT)
        finally:
            child.kill()
        assert child.returncode == 0 and err == "", err
        result = json.loads(out.read_text())
        assert max(result["left"]) <= 0, f"{result['left']} more threads and descriptors than before"
        return result["during"], result["after"]
