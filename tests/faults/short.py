"""A process of which each child reads a pass while one allocation after the other is refused. Prints how each ended.

short.py config(JSON) batch_size(0: single samples) late(0 or 1) how(python or native) first behind(-1: until there is none) width step
"""

import ctypes
import itertools
import json
import os
import signal
import sys
import traceback
from collections import Counter

import datago
from datago import DatagoClient, SourceError
from datago.batches import DatagoBatchDataset

config, (size, late), how = json.loads(sys.argv[1]), map(int, sys.argv[2:4]), sys.argv[4]
first, behind, width, step = map(int, sys.argv[5:])
LIMIT = 30  # seconds for one pass
PACKAGE = os.fsencode(os.path.dirname(datago.__file__)) + b"/"


def refuse(begin, end):
    """Refuses the allocations from `begin` on, up to `end`. Returns how many were made since the last call, where that is counted."""
    if how == "native":
        return ctypes.CDLL(None).malloc_refuse(PACKAGE, ctypes.c_long(begin), ctypes.c_long(end))
    elif begin < 0:
        _testcapi.remove_mem_hooks()
    else:
        _testcapi.set_nomemory(begin, end)
    return None


def one_pass(number):
    """How a pass ends that lacks its allocations from `number` on, and how many it made, if that is counted."""
    dataset = DatagoBatchDataset(config, size) if size else DatagoClient(config)
    samples, ended = iter(dataset), "end"
    count = len(next(samples)["id"]) if size and late else 1 if late and next(samples) else 0
    refuse(number, number + width)
    try:
        for sample in samples:
            count += len(sample["id"]) if size else 1
    except MemoryError:
        ended = "MemoryError"
    except SystemError:  # so the interpreter says it where it lost the MemoryError itself
        ended = "MemoryError"
    except SourceError as error:
        ended = f"SourceError: {error}"
    finally:
        made = refuse(-1, -1)
    client = dataset._running if size else dataset
    stats = client.stats() if client is not None else None
    return [ended, count, stats, made]


if how == "python":
    import _testcapi
for _ in DatagoBatchDataset(config, size) if size else DatagoClient(config):
    pass  # everything is imported
ends, refused = Counter(), 0
for number in itertools.count(first, step) if behind < 0 else range(first, behind, step):
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(LIMIT)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what threads say of their end
        try:
            end = one_pass(number)
        except BaseException:
            end = [traceback.format_exc(), 0, None, None]
        os.write(into, json.dumps(end).encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        said = file.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"allocation {number}: signal {os.WTERMSIG(status)}, exit code {status >> 8}"
    ended, count, stats, made = json.loads(said)
    refused += ended != "end" or stats["failed"] > 0 if made is None else made > number
    ends[ended.partition(":")[0]] += 1
    if stats is not None:
        assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] + stats["in_flight"], (number, ended, stats)
        assert sum(stats["failures"].values()) == stats["failed"], (number, ended, count, stats)
        assert all("memory" in failure["text"] for failure in stats["last_failures"]), (number, stats)
        whole = set(stats["failures"]) <= {"no_memory"}  # else a shard, with all that came behind in it
    if ended == "end":
        assert count == stats["delivered"] and (count == 12 - stats["failed"] or not whole), (number, count, stats)
    elif ended != "MemoryError":
        assert ended.startswith("SourceError") and ("no_memory" in ended or "no thread could be started" in ended), f"{number}: {ended}"
    if behind < 0 and made is not None and made <= number:
        break
print(json.dumps({"ends": ends, "refused": refused}))
