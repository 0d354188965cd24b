"""Progress of long work: bytes, rate and time left on a terminal, silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
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
def steps(description: str, total: Callable[[], int | None]) -> Iterator[tuple[Watch, Report]]:
    """A bar for an operation of several steps: the watch names the step, and the report is told
    of the bytes of the one that copies."""
    with _bar() as bar:
        if bar is None:
            yield unwatched, silent
            return
        task = bar.add_task(printable(description), total=total())

        def watch(_verb: str, step: str, _moment: Moment) -> None:
            bar.update(task, description=f"{printable(description)}: {step}")

        yield watch, lambda count: bar.update(task, advance=count, total=total())


@contextmanager
def transfer(description: str, total: Callable[[], int | None]) -> Iterator[Report]:
    """A bar for the block; what it yields is told of each piece done. How much it is all together
    may turn out with the first one."""
    with steps(description, total) as (_, report):
        yield report


@contextmanager
def _bar() -> Iterator[Progress | None]:
    """On standard error; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),  # a file may be named like markup
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
