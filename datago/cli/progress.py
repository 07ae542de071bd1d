"""Shows the progress of work on stderr: as a bar by the package rich on a terminal, otherwise as plain lines."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Report = Callable[[str, int], None]
PERIOD = 2  # seconds between two plain lines


@contextlib.contextmanager
def progress(total: int | None = None, quiet: bool = False) -> Iterator[Report]:
    """Gives a function `report(text, done)`, which shows the current step and how many of `total` steps (None: not known) are done."""
    if quiet:
        yield lambda text, done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        has_rich = True
    except ImportError:
        has_rich = False
    if not has_rich or not sys.stderr.isatty():
        yield _plain(total)
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, done: bar.update(task, description=text, completed=done)


def _plain(total: int | None) -> Report:
    last_text, last_time = "", 0.0

    def report(text: str, done: int) -> None:
        nonlocal last_text, last_time
        now = time.monotonic()
        if text != last_text or now - last_time > PERIOD:
            if last_text or total:
                print(f"{text} ({done}{f' of {total}' if total else ''})", file=sys.stderr, flush=True)
            last_text, last_time = text, now

    return report
