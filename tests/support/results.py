"""What became of the tests and how long they took, file by file; with make test-full also as a
table in docs/results."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# The file that the table is added to, besides being shown.
_FILE = "MILLPOND_TEST_RESULTS"
_HEAD = "| tests | passed | failed | skipped | seconds |\n|---|---|---|---|---|"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    table = "\n".join([_HEAD, *_rows(terminalreporter)])
    terminalreporter.section("results")
    terminalreporter.write_line(table)
    if place := os.environ.get(_FILE):
        with Path(place).open("a") as file:
            file.write(f"{table}\n\n")


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
