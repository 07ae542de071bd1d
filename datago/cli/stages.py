"""Runs one stage of a stream in this process: `python -m datago.cli.stages`, with its arguments as JSON on stdin.

  list ──► read ──► decode ──► hand over

list       what the source enumerates: paths, shards, or pages of records
read       files, shards or downloads, no pixels
decode     samples from memory through workers: decode, crop, resize, encode
hand over  as decode, but with pictures of 8 x 8 pixels: it times the rings between the threads
"""

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from datago import config as configuration
from datago.checkpoint import resume
from datago.checks import MAX_INT
from datago.cli import words
from datago.cli.inputs import Config
from datago.cli.measure import Meter, Row, stream
from datago.engine._pool import Pool
from datago.engine._progress import Progress
from datago.engine._sample import Entry, Failure
from datago.environment import worker_count
from datago.settings import ImageSettings
from datago.sources import Source, open_source, pass_settings, source_type
from datago.threads import start_thread

KEPT_BYTES, KEPT_COUNT = 1 << 28, 2000  # of encoded samples that `decode` keeps in memory
Item = tuple[bytes, int] | Entry | Failure
LOADING = 20  # the most seconds that `decode` reads them for


def listing(parsed: Config, seconds: float, pil: bool) -> Row:
    """Enumerates what SourceType.listed names, again and again."""
    meter, going = Meter(seconds), True
    while going:
        before = meter.count
        for count in source_type(parsed.source_type).enumerate(pass_settings(parsed, _run(parsed), Progress())):
            going = meter.add(count)
            if not going:
                break
        going = going and meter.count > before
    return meter.row(whole=True)


def reading(parsed: Config, seconds: float, pil: bool) -> Row:
    """Reads the samples' bytes into memory, and discards them."""
    meter = Meter(seconds)
    with contextlib.closing(_entries(parsed)) as entries:
        for entry in entries:
            if not isinstance(entry, Failure) and not meter.add():
                break
    return meter.row()


def decoding(parsed: Config, seconds: float, pil: bool) -> Row:
    """Decodes samples that were read into memory before."""
    kept: list[Entry] = []
    size, end = 0, time.monotonic() + LOADING
    with contextlib.closing(_entries(parsed, once=True)) as entries:
        for entry in entries:
            if isinstance(entry, Entry):
                entry.own()
                entry.position = -1
                kept.append(entry)
                size += sum(len(memoryview(data)) for _, _, data in entry.images if not isinstance(data, str))
            if size > KEPT_BYTES or len(kept) >= KEPT_COUNT or time.monotonic() > end:
                break
    return _through_pool(parsed, parsed.image_config, kept, seconds, pil)


def handing_over(parsed: Config, seconds: float, pil: bool) -> Row:
    """Takes tiny pictures through the workers."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "PNG")
    image = configuration.parse_image({})
    return _through_pool(parsed, image, [Entry("x", "", [("image", "", out.getvalue())])] * 1000, seconds, pil)


def whole(config: dict[str, Any], seconds: float, pil: bool) -> Row:
    """Reads a stream. It takes the config as it was given."""
    return stream(seconds=seconds, pil=pil, config=config)


STAGES: dict[str, Callable[[Any, float, bool], Row]] = {
    "list": listing,
    "read": reading,
    "decode": decoding,
    "hand over": handing_over,
    "stream": whole,
}


def _run(parsed: Config) -> resume.Run:
    run: resume.Run = resume.begin(parsed, parsed.epoch)
    run.draw()
    return run


@contextlib.contextmanager
def _source(parsed: Config) -> Iterator[Source]:
    source = open_source(parsed, _run(parsed), Progress())
    source.open()
    try:
        yield source
    finally:
        source.stop()


def _entries(parsed: Config, once: bool = False) -> Generator[Entry | Failure, None, None]:
    """Entries with their bytes, and Failures. Passes are repeated until one is empty, or the generator is closed. `once`: one pass."""
    found = True
    while found:
        found = False
        with _source(parsed) as source, contextlib.closing(_read(parsed, source.batches())) as entries:
            for entry in entries:
                found = found or isinstance(entry, Entry)
                yield entry
        found = found and not once


def _read(parsed: Config, batches: Iterable[Sequence[Item]]) -> Generator[Entry | Failure, None, None]:
    """The entries of a source. If they are paths, as many threads as a stream has workers read the files."""
    from concurrent.futures import ThreadPoolExecutor

    count = worker_count(parsed.limit)
    with ThreadPoolExecutor(count) as threads:
        for batch in batches:
            step = 64 * count
            for first in range(0, len(batch), step):
                yield from threads.map(_read_file, batch[first : first + step])


def _read_file(entry: Item) -> Entry | Failure:
    if isinstance(entry, Failure) or isinstance(entry, Entry) and entry.path is None:
        return entry
    path = os.fsencode(entry.path or "") if isinstance(entry, Entry) else entry[0]
    try:
        with open(path, "rb", buffering=0) as file:
            return Entry(path.decode(errors="replace"), "", [("image", "", file.read())])
    except OSError as error:
        return Failure(path.decode(errors="replace"), "io", str(error))


def _through_pool(parsed: Config, image: ImageSettings, entries: Sequence[Item], seconds: float, pil: bool) -> Row:
    meter, failed, batch = Meter(seconds), 0, list(entries)
    if not batch:
        return meter.row()
    most = MAX_INT
    pool = Pool(
        threads=worker_count(most),
        work_capacity=64,
        ready_capacity=parsed.samples_buffer_size,
        limit=most,
        max_file_bytes=parsed.max_file_bytes,
        memory_limit=parsed.memory_limit or 0,
        image=image,
        progress=Progress(),
    )
    stopped = threading.Event()

    def feed() -> None:
        while not stopped.is_set() and pool.submit(batch):
            pass

    feeder = start_thread(feed, "datago feeder")
    try:
        while meter.count or failed <= len(batch):
            if isinstance(pool.take(pil), Failure):
                failed += 1
            elif not meter.add():
                break
    finally:
        stopped.set()
        pool.stop()
        feeder.join(5)
        pool.join(5)
    return meter.row()


def main() -> None:
    """Prints one line of JSON: a row, or {"error": message}."""
    stage, config, seconds, pil = json.loads(sys.stdin.read())
    try:
        work = STAGES[stage]
        print(json.dumps(work(config if work is whole else configuration.parse(config), seconds, pil)))
    except (OSError, ValueError) as error:  # a SourceError is one of them
        print(json.dumps({"error": words(error)}))


if __name__ == "__main__":
    main()
