"""Programs that train in several processes, started as their users would, killed, and read by what they print."""

import os
import pathlib
import re
import signal
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def start(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *map(str, command)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def launch(ranks, *arguments):
    return start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *arguments)


def kill(process):
    """SIGKILL for the launcher and all below it: the ranks are in sessions of their own."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    family = {process.pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


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
