"""Wake-ups that are lost, as glibc before 2.41 loses one now and then (its bug 25847): a pass is slow then, but comes to its end."""

import json
import subprocess
import sys

import album
import pytest
from album import DB, FILE, TAR
from processes import ENVIRONMENT, library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library for glibc"),
]

SCRIPT = """
import ctypes, json, os, sys, threading, time
import datago
folder = os.fsencode(os.path.dirname(datago.__file__)) + b"/"
config = json.loads(sys.argv[1])
list(datago.DatagoClient(config))  # everything is imported
ctypes.CDLL(None).wakeups_lose(folder)
client = datago.DatagoClient(config)
count = sum(1 for _ in client)
with datago.DatagoClient(config) as stopped:
    assert stopped.get_sample() is not None
end = time.monotonic() + 60
while (left := [thread.name for thread in threading.enumerate() if thread.name.startswith("datago")]) and time.monotonic() < end:
    time.sleep(0.01)
print(json.dumps([count, stopped.stats()["in_flight"], left, ctypes.CDLL(None).wakeups_lost() > 0]))
"""


@pytest.mark.parametrize("column", [FILE, TAR, DB])
@pytest.mark.parametrize("top", [{}, {"ordered": True}, {"memory_limit": 1 << 16}], ids=["", "ordered", "memory_limit"])
def test_no_wait_rests_on_a_wake_up_alone(tmp_path, column, top):
    with album.source(column, tmp_path, album.pictures()) as config:
        command = [sys.executable, "-c", SCRIPT, json.dumps({**config, "samples_buffer_size": 2, **top})]
        environment = {**ENVIRONMENT, "LD_PRELOAD": str(library("wakeups"))}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads(done.stdout) == [12, 0, [], True]
