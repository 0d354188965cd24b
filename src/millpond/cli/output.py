"""How results are shown: tables on a terminal, plain columns in a pipe, JSON when asked."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = "  "


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings. Nothing is cut off: what is too wide for the terminal is
    wrapped, in a pipe each row stays on its line."""
    if not sys.stdout.isatty():
        _print_columns([columns, *rows])
        return
    shown = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows:
        shown.add_row(*(Text(each) for each in row))
    Console(highlight=False).print(shown)


def details(pairs: Sequence[tuple[str, str]]) -> None:
    """Print what is known of one thing, a fact a line."""
    if not sys.stdout.isatty():
        _print_columns(pairs)
        return
    shown = Table.grid(padding=(0, len(_GAP)))
    shown.add_column(style="bold")
    shown.add_column(overflow="fold")
    for name, value in pairs:
        shown.add_row(Text(name), Text(value))
    Console(highlight=False).print(shown)


def as_json(value: object) -> str:
    """A value, dataclasses and all, as JSON."""
    content = msgspec.json.encode(value, enc_hook=_plain)
    return msgspec.json.format(content, indent=2).decode()


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(_GAP.join(cells).rstrip())


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
