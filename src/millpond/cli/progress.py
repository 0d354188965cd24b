"""Progress of long work: bytes, rate and time left on a terminal, silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from millpond.model.names import printable
from millpond.records.journal import Moment, Watch, unwatched
from millpond.system.files import Progress as Report
from millpond.system.files import silent


@contextmanager
def steps(description: str) -> Iterator[Watch]:
    """A line on standard error for the block; what it yields is told of each step."""
    description = escape(printable(description))
    if not sys.stderr.isatty():
        yield unwatched
        return
    with Console(stderr=True).status(description) as line:

        def watch(_verb: str, step: str, _moment: Moment) -> None:
            line.update(f"{description}: {step}")

        yield watch


@contextmanager
def transfer(description: str, total: Callable[[], int | None]) -> Iterator[Report]:
    """A bar on standard error for the block; what it yields is told of each piece done. How much
    it is all together may turn out with the first one."""
    if not sys.stderr.isatty():
        yield silent
        return
    columns = (
        TextColumn("{task.description}", markup=False),  # a file may be named like markup
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(description), total=total())
        yield lambda count: bar.update(task, advance=count, total=total())
