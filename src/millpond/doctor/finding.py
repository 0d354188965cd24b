"""What a check found: how bad it is in one word, one sentence, and what to do about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Repair = Callable[[], str]
"""Repairs it and says in words what was done; raises what keeps it from being repaired."""


class Level(StrEnum):
    OK = "ok"
    REPAIRED = "repaired"
    UNKNOWN = "unknown"
    """Not looked at, because of a problem with something else, or because it is not here."""
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    what: str
    """One sentence."""
    do: str = ""
    repair: Repair | None = None
    check: str = ""
    """The name of the check in the table; it is put there when the check has been run."""
    host: str = ""
    """Empty if it is of no single one."""


def ok(what: str) -> Finding:
    return Finding(level=Level.OK, what=what)


def warning(what: str, do: str, repair: Repair | None = None) -> Finding:
    return Finding(level=Level.WARNING, what=what, do=do, repair=repair)


def problem(what: str, do: str, repair: Repair | None = None) -> Finding:
    return Finding(level=Level.PROBLEM, what=what, do=do, repair=repair)


_SHOWN = 8


def counted(number: int, thing: str, things: str = "") -> str:
    """``1 volume``, ``2 volumes``."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
