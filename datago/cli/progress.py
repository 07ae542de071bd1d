"""How long work is going, on stderr: by the package rich on a terminal, else in plain lines."""

import contextlib
import sys
import time

PERIOD = 2  # seconds between two plain lines


@contextlib.contextmanager
def progress(total=None, quiet=False):
    """Gives a function `report(text, done)`: what is done now, and how much of `total` (None: not known) is behind."""
    if quiet:
        yield lambda text, done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        Progress = None
    if Progress is None or not sys.stderr.isatty():
        yield _plain(total)
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, done: bar.update(task, description=text, completed=done)


def _plain(total):
    last = ["", 0.0]

    def report(text, done):
        now = time.monotonic()
        if text != last[0] or now - last[1] > PERIOD:
            if last[0] or total:
                print(f"{text} ({done}{f' of {total}' if total else ''})", file=sys.stderr, flush=True)
            last[:] = text, now

    return report
