"""What threads of ours do to the process they are in: no look at the environment, no signal kept from faulthandler."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import jpeg
from PIL import Image

# Stands before the C library: once `watch` was called, whoever reads the environment in a thread of ours ends the process.
SHIM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
extern char **environ;
static int watched;
void watch(int on) { watched = on; }
char *getenv(const char *name)
{
    char thread[17] = "", text[200];
    size_t length = strlen(name);
    prctl(PR_GET_NAME, thread);
    if (watched && !strncmp(thread, "datago", 6)) {
        int size = snprintf(text, sizeof text, "%s reads %s\n", thread, name);
        _exit(write(2, text, (size_t)size) ? 9 : 9);
    }
    for (char **entry = environ; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}
char *secure_getenv(const char *name) { return getenv(name); }
"""

# `watch` comes after the first sample: by then every thread has begun.
SCRIPT = r"""
import ctypes, json, locale, sys
from datago import DatagoClient
locale.setlocale(locale.LC_ALL, "C.UTF-8")  # with which the system's texts are looked up in catalogues
for config in json.loads(sys.argv[1]):
    client = DatagoClient(config)
    count = int(client.get_sample(timeout=20) is not None)
    ctypes.CDLL(sys.argv[2]).watch(1)
    count += sum(1 for _ in client)
    print(count, sorted(client.stats()["failures"].items()), flush=True)
    client.stop()
    ctypes.CDLL(sys.argv[2]).watch(0)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the test wants Linux and a C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", folder / "shim.c"], check=True, timeout=60)
    return str(folder / "shim.so")


def watched(shim, *configs):
    environment = {**os.environ, "LD_PRELOAD": shim, "DATAGO_MAX_TASKS": "2"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(configs), shim]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_worker_reads_the_environment(shim, tmp_path):
    for i in range(40):
        (tmp_path / f"{i:02d}.jpg").write_bytes(jpeg(90, 60, i, progressive=i % 3 == 0))
    for name in ("a.png", "b.webp", "c.gif"):
        Image.new("RGB", (90, 60)).save(tmp_path / name)
    (tmp_path / "e.jpg").write_bytes(jpeg()[:200])
    (tmp_path / "f.jpg").symlink_to("/proc/self/mem")  # opening or reading it fails
    os.mkfifo(tmp_path / "g.jpg")
    bucket = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
    source = {"source_type": "file", "source_config": {"root_path": str(tmp_path)}}
    encoded = [{"pre_encode_images": True, "encode_format": kind} for kind in ("jpeg", "png")]
    lines = watched(shim, *({**source, "image_config": image} for image in ({}, {**bucket, "horizontal_flip": 0.5}, *encoded)))
    assert all(int(line.split()[0]) == 43 for line in lines) and len(lines) == 4, lines


FAULT = r"""
import ctypes, faulthandler, os, signal, sys, time
from datago import DatagoClient
faulthandler.enable()
client = DatagoClient({"source_type": "file", "source_config": {"root_path": sys.argv[1]}, "samples_buffer_size": 1})
client.get_sample(timeout=20)
threads = [int(thread) for thread in os.listdir("/proc/self/task")]
worker = next(thread for thread in threads if open(f"/proc/self/task/{thread}/comm").read().startswith("datago worker"))
ctypes.CDLL(None).tgkill(os.getpid(), worker, int(sys.argv[2]))
time.sleep(20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are found in /proc")
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"])
def test_faulthandler_speaks_of_a_fault_in_a_worker(folder, name):
    number = getattr(signal, name)
    environment = {**os.environ, "DATAGO_MAX_TASKS": "2"}
    done = subprocess.run([sys.executable, "-c", FAULT, folder, str(int(number))], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == -number and "Fatal Python error" in done.stderr and "Thread 0x" in done.stderr, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="masks are read in /proc")
def test_signals_of_the_process_are_the_main_threads(folder):
    """A worker blocks what may reach any thread, like SIGINT and SIGTERM."""
    script = FAULT.replace("ctypes.CDLL", "print(open(f'/proc/self/task/{worker}/status').read(), flush=True); os._exit(0)\nctypes.CDLL")
    done = subprocess.run([sys.executable, "-c", script, folder, "0"], capture_output=True, text=True, timeout=60)
    blocked = int(next(line for line in done.stdout.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    for name, wanted in {"SIGINT": 1, "SIGTERM": 1, "SIGCHLD": 1, "SIGALRM": 1, "SIGUSR1": 1, "SIGSEGV": 0, "SIGBUS": 0, "SIGABRT": 0}.items():
        assert blocked >> getattr(signal, name) - 1 & 1 == wanted, name
