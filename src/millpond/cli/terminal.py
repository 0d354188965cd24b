"""Tables and progress bars on a terminal: loaded only where there is one, because rich takes its
time to load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from millpond.model.callbacks import Progress as Report
from millpond.records.journal import StepMoment, Watch


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Nothing is cut off: what is too wide is wrapped."""
    shown = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows:
        shown.add_row(*(Text(each) for each in row))
    Console(highlight=False).print(shown)


def details(pairs: Sequence[tuple[str, str]]) -> None:
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="bold")
    shown.add_column(overflow="fold")
    for name, value in pairs:
        shown.add_row(Text(name), Text(value))
    Console(highlight=False).print(shown)


@contextmanager
def bar(description: str, total: Callable[[], int | None]) -> Iterator[tuple[Watch, Report]]:
    """On standard error: bytes, rate and time left."""
    columns = (
        TextColumn("{task.description}", markup=False),  # a file may be named like markup
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(description, total=total())

        def watch(_verb: str, step: str, _moment: StepMoment) -> None:
            shown.update(task, description=f"{description}: {step}")

        yield watch, lambda count: shown.update(task, advance=count, total=total())
