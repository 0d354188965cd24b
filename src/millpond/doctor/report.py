"""How findings are told, by whichever program has made them: a line each, or JSON."""

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from millpond.config import LOCAL
from millpond.doctor.checks import CHECKS, CONFIGURATION
from millpond.doctor.finding import Finding, Level, counted
from millpond.model.names import printable

# On a terminal; in a pipe the level itself is the mark.
_MARKS = {
    Level.OK: ("✔", "green"),
    Level.REPAIRED: ("✚", "green"),
    Level.UNKNOWN: ("?", "dim"),
    Level.WARNING: ("!", "yellow"),
    Level.PROBLEM: ("✘", "bold red"),
}
_CHECK_WIDTH = max(len(name) for name in (CONFIGURATION, *(check.name for check in CHECKS)))
_LEVEL_WIDTH = max(len(level) for level in Level)


def tell(findings: Iterable[Finding], *, as_json: bool) -> int:
    """All of them. The exit status: 1 if there is a problem, and 0 otherwise."""
    if as_json:
        found = list(findings)
        print(json.dumps([_plain(each) for each in found], indent=2))
    else:
        found = _show(findings)
        print(_summary(found))
    return int(any(each.level is Level.PROBLEM for each in found))


def _show(findings: Iterable[Finding]) -> list[Finding]:
    """Each as soon as it is found: repairing may take a while."""
    console = Console(highlight=False)
    marked = console.is_terminal and console.encoding.startswith("utf")
    width = console.width if console.is_terminal else sys.maxsize
    shown = []
    for each in findings:
        mark, style = _MARKS[each.level] if marked else (f"{each.level:<{_LEVEL_WIDTH}}", "")
        text = Text("\n".join(_lines(each, mark, width)))
        text.stylize(style, 0, len(mark))
        console.print(text, soft_wrap=True)
        shown.append(each)
    return shown


def _lines(finding: Finding, mark: str, width: int) -> Iterator[str]:
    """The sentence, and what to do below it, each under its own beginning."""
    start = f"{mark} {finding.check:<{_CHECK_WIDTH}} "
    where = f"{finding.host}: " if finding.host not in ("", LOCAL) else ""
    yield from _wrap(where + finding.what, start, width)
    for number, line in enumerate(finding.do.splitlines()):
        yield from _wrap(line.strip(), " " * len(start) + ("  do: ", "      ")[number > 0], width)


def _wrap(text: str, start: str, width: int) -> list[str]:
    """A long path stays in one piece, so that it can be copied."""
    return textwrap.wrap(
        printable(text, keep="\n"),
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(found: list[Finding]) -> str:
    counts = Counter(each.level for each in found)
    problems, warnings, unknown = (
        counts[level] for level in (Level.PROBLEM, Level.WARNING, Level.UNKNOWN)
    )
    parts = [counted(problems, "problem") if problems else "no problem"]
    if warnings:
        parts.append(counted(warnings, "warning"))
    if unknown:
        parts.append(f"{unknown} not looked at")
    return ", ".join(parts)


def _plain(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "host": finding.host,
        "level": finding.level,
        "what": finding.what,
        "do": finding.do,
        "repairable": finding.repair is not None,
    }
