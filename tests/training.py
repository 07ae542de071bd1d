"""Programs that train in several processes, started as their users would, killed, and read by what they print."""

import contextlib
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time

MARK = "DATAGO_TEST_PROGRAM"
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def start(*command):
    mark = secrets.token_hex(8)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", MARK: mark}
    command = [sys.executable, *map(str, command)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    process.mark = mark
    return process


def launch(ranks, *arguments):
    return start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *arguments)


def kill(process):
    """SIGKILL for the launcher and all that it started: the ranks are in sessions of their own, and a DataLoader worker that was just
    being forked has no parent any more, and would wait for it for ever. So they are known by a variable of their environment."""
    while family := [path for path in pathlib.Path("/proc").glob("[0-9]*") if started_by(path, process)]:
        for path in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)
        time.sleep(0.05)


def started_by(path, process):
    try:
        state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and f"{MARK}={process.mark}\0".encode() in (path / "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False


def kill_at(process, line):
    """Kills a program once it has printed a line that begins so; what it printed."""
    try:
        lines = []
        for printed in process.stdout:
            lines.append(printed)
            if printed.startswith(line):
                break
    finally:
        kill(process)
    lines += process.stdout.readlines()  # of what was still done before all were gone
    errors = process.communicate(timeout=60)[1]
    assert any(printed.startswith(line) for printed in lines), errors
    return lines


def finish(process, timeout=150):
    """Waits until a program has ended well; the lines that it printed."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        kill(process)
    assert process.returncode == 0, err
    return out.splitlines()


def steps(lines):
    """(epoch, step) → the names that all ranks together had in it."""
    found = {}
    for line in lines:
        if match := re.match(r"epoch (\d+) step (\d+) rank (\d+) (\S+) loss", line):
            epoch, step, rank, name = match.groups()
            found.setdefault((int(epoch), int(step)), {}).setdefault(rank, []).append(name)
    return found
