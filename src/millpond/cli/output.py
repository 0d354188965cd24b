"""How results are shown: tables on a terminal, plain columns in a pipe, JSON when asked. And the
progress of long work: a bar on a terminal, silence in a pipe."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from millpond.errors import MillpondError
from millpond.model.callbacks import Progress, noop
from millpond.model.names import printable
from millpond.model.server import Server
from millpond.records.journal import Watch

_GAP = "  "
# What JSON itself lets stand: C1 controls, and what turns lines round.
_CONTROL = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings. In a pipe each row stays on its line."""
    rows = [[printable(each) for each in row] for row in rows]
    if sys.stdout.isatty():
        _terminal().table(columns, rows)
    else:
        _print_columns([columns, *rows])


def details(pairs: Sequence[tuple[str, str]]) -> None:
    """Print what is known of one thing, a fact a line."""
    pairs = [(printable(name), printable(value)) for name, value in pairs]
    if sys.stdout.isatty():
        _terminal().details(pairs)
    else:
        _print_columns(pairs)


def _terminal() -> Any:
    """By name, like the verbs: in a pipe it is not loaded."""
    return import_module("millpond.cli.terminal")


def as_json(value: object) -> str:
    """A value, dataclasses and all, as JSON, in which no terminal finds a command."""
    content = msgspec.json.encode(value, enc_hook=_plain)
    text = msgspec.json.format(content, indent=2).decode()
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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


@contextmanager
def steps(description: str, total: Callable[[], int | None]) -> Iterator[tuple[Watch, Progress]]:
    """Progress of an operation of several steps: the watch names the step, and the other is told
    of the bytes of the one that copies."""
    if not sys.stderr.isatty():
        yield noop, noop
        return
    with _terminal().bar(printable(description), total) as shown:
        yield shown


@contextmanager
def transfer(description: str, total: Callable[[], int | None]) -> Iterator[Progress]:
    """Progress of the block; what it yields is told of each piece done. How much it is all
    together may turn out with the first one."""
    with steps(description, total) as (_, progress):
        yield progress


def complain(error: MillpondError) -> None:
    for line in str(error).split("\n"):
        print(f"millpond: {printable(line)}", file=sys.stderr)
    if error.advice:
        print(printable(f"  hint: {error.advice}", keep="\n"), file=sys.stderr)


def complain_of(server: Server, source: str, error: MillpondError) -> None:
    """One that was to leave a host: it may have, before what was left to do failed."""
    stays = server.host == source
    where = f"stays on {source}" if stays else f"is on {server.host} now, and not finished"
    print(f"{server.name} {where}:", file=sys.stderr)
    complain(error)


def note_new_state(state: Path) -> None:
    """An empty list may be that of a path that was misspelt."""
    if not state.exists():
        note = f"note: there is no state directory {state} yet; state_path says where it is"
        print(printable(note), file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    config_files: tuple[Path, ...] = ()
