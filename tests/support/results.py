"""What became of the tests and how long they took, file by file: tests/full.py reads it, and make
test-nova writes it to a page. And, side by side, of those that run with our driver and with Nova's
own."""

import os
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

# The file that the table is added to, besides being shown.
_FILE = "MILLPOND_TEST_RESULTS"
_HEAD = "| tests | passed | failed | skipped | seconds |\n|---|---|---|---|---|"
_MADE = (
    "`make test-nova` writes such a page when it is complete. A busy machine changes the seconds."
)
_DRIVERS = ("millpond", "nova")
_COMPARED = re.compile(rf".*::(test_\w+)\[({'|'.join(_DRIVERS)})-(.+)\]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _begin()
    _publish(terminalreporter, "results", [_HEAD, *_rows(terminalreporter)])
    if compared := list(_comparison(terminalreporter)):
        head = f"| test | {' | '.join(_DRIVERS)} |\n|---|---|---|"
        _publish(terminalreporter, "both drivers", [head, *compared])


def _begin() -> None:
    """A page of its own for each run."""
    if place := os.environ.get(_FILE):
        title = f"# What became of the tests on {datetime.now(UTC):%Y-%m-%d}"
        Path(place).write_text(
            f"{title}\n\n{platform.machine()}, Python {platform.python_version()}. {_MADE}\n\n"
        )


def _publish(reporter: pytest.TerminalReporter, title: str, lines: list[str]) -> None:
    table = "\n".join(lines)
    reporter.section(title)
    reporter.write_line(table)
    if place := os.environ.get(_FILE):
        with Path(place).open("a") as file:
            file.write(f"{table}\n\n")


def _comparison(reporter: pytest.TerminalReporter) -> Iterator[str]:
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, ()):
            if report.when == "call" and (match := _COMPARED.fullmatch(report.nodeid)):
                name, driver, case = match.groups()
                found[f"{name}[{case}]"][driver] = f"{outcome}, {report.duration:.0f} s"
    for name, cells in found.items():
        yield f"| {name} | {' | '.join(cells.get(driver, '') for driver in _DRIVERS)} |"


def _rows(reporter: pytest.TerminalReporter) -> Iterator[str]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for outcome, reports in reporter.stats.items():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                name = report.nodeid.partition("::")[0]
                kind = "failed" if outcome == "error" else outcome
                counts[name][kind] += kind in ("passed", "failed", "skipped")
                seconds[name] += report.duration  # type: ignore[assignment]
    for name, found in sorted(counts.items()):
        cells = (found["passed"], found["failed"], found["skipped"], f"{seconds[name]:.0f}")
        yield f"| {name} | {' | '.join(map(str, cells))} |"
