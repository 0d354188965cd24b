"""Tables on a terminal: loaded only where there is one, because rich takes its time to load."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


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
