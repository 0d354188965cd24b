"""``make test-full``: all tests in parts of at most an hour, one after another, whatever fails.

What each part printed of its results goes to the page of the day in docs/results, so that parts
can be run in different sessions: ``make test-full PART=real-1``, or several: ``PART="ceph nova"``.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.openstack.environment import python

_REPOSITORY = Path(__file__).parents[1]
_RESULTS = _REPOSITORY / "docs/results"
_FULL = {"MILLPOND_TEST_FULL": "1"}
_PYTEST = (sys.executable, "-m", "pytest", "--durations=25")


def _real(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/real/test_{name}.py" for name in names)


# Those that kill at each step and those of several hosts, and those that boot a cloud image, take
# most of the time of tests/real.
_HOSTS = _real("hosts", "hosts_killed", "hosts_many", "kill", "remote_hosts", "remote_table")
_MOVES = _real(
    *("bad_moves", "drain", "evacuate", "live_daemons", "live_migrate", "migrate"),
    *("migrate_backends", "migrate_bytes", "migrate_daemons", "post_copy"),
)
_TABLE = _real("operations_table")
# Half of the time of tests/lvm, which takes more than an hour on a busy machine.
_LVM_2 = tuple(
    f"tests/lvm/test_{name}.py"
    for name in ("lvm_backend", "moves", "nova", "operations_table", "table")
)
_NESTED = (
    *("tools/nested/run", "--seconds", "3600", "--with", str(python().parents[1])),  # has Nova
    *("env", "MILLPOND_TEST_FULL=1"),
    *(".venv/bin/python", "-m", "pytest", "--timeout=600", "--durations=25"),
)
_CLOUD = _real("all_disks", "clone", "cloud_init", "reaching", "transcripts", "waiting")

PARTS: Mapping[str, tuple[str, ...]] = {
    "unit": (*_PYTEST, "tests/unit", "tests/contract"),
    "real-1": (*_PYTEST, *_HOSTS),
    "real-2": (
        *_PYTEST,
        "tests/real",
        *(f"--ignore={each}" for each in (*_HOSTS, *_MOVES, *_TABLE, *_CLOUD)),
    ),
    "moves-1": (*_PYTEST, *_MOVES),
    "moves-2": (*_PYTEST, *_TABLE),
    "cloud": (*_PYTEST, *_CLOUD),
    "ceph": (*_PYTEST, "tests/ceph"),
    "services": (*_PYTEST, "tests/services"),
    "nova": (*_PYTEST, "tests/nova"),
    "tempest": (sys.executable, "-m", "tests.tempest", "--short"),
    "lvm-1": (*_NESTED, "tests/lvm", *(f"--ignore={each}" for each in _LVM_2)),
    "lvm-2": (*_NESTED, *_LVM_2),
    "chaos": (sys.executable, "-m", "tests.chaos", "--seconds", "600"),
    "fresh": ("tools/fresh/run", "--release", "trixie"),
}

_ROW = re.compile(r"\| (tests/\S+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \|")
_COMPARED = re.compile(r"\| test_.* \|.*\|.*\|")  # both drivers: tests/support/results.py
_KILLS = re.compile(r"seed (\w+): (\d+) kills .*")
_PARTS_HEAD = "| part | passed | failed | skipped | minutes | |\n|---|---|---|---|---|---|"
_HEADS = {
    "Parts": _PARTS_HEAD,
    "Files": "| tests | passed | failed | skipped | seconds |\n|---|---|---|---|---|",
    "Both drivers": "| test | millpond | nova |\n|---|---|---|",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    part: str
    passed: int
    failed: int
    skipped: int
    minutes: float
    note: str = ""
    rows: tuple[str, ...] = ()
    """Of its files."""
    compared: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        cells = (self.part, self.passed, self.failed, self.skipped, f"{self.minutes:.0f}")
        return f"| {' | '.join(map(str, cells))} | {self.note} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.full", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parts = parser.parse_args().parts or [*PARTS]
    if unknown := [each for each in parts if each not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    page = _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.md"
    results = []
    for each in parts:
        results.append(run(each))
        merge(page, results[-1])
    print(_PARTS_HEAD, *(each.line for each in results), sep="\n")
    sys.exit(any(each.failed for each in results))


def run(part: str) -> Result:
    """What it prints is shown, and read."""
    print(f"==== {part}: {' '.join(PARTS[part])}", flush=True)
    begun = time.monotonic()
    lines = []
    with subprocess.Popen(
        PARTS[part],
        cwd=_REPOSITORY,
        env={**os.environ, **_FULL},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
    return read(part, lines, process.returncode, (time.monotonic() - begun) / 60)


def read(part: str, lines: Sequence[str], code: int, minutes: float) -> Result:
    """A part that ended badly has failed, whatever it printed; one without a table counts as one
    test."""
    found = [match for line in lines if (match := _ROW.fullmatch(line))]
    counts = [sum(int(match[column]) for match in found) for column in (2, 3, 4)]
    if not found:
        counts = [int(code == 0), 0, 0]
    passed, failed, skipped = counts
    return Result(
        part=part,
        passed=passed,
        failed=failed or int(code != 0),
        skipped=skipped,
        minutes=minutes,
        note=next((match[0] for line in lines if (match := _KILLS.fullmatch(line))), ""),
        rows=tuple(match[0] for match in found),
        compared=tuple(line for line in lines if _COMPARED.fullmatch(line)),
    )


def merge(page: Path, result: Result) -> None:
    """Lines of the same name are replaced, all others stay."""
    tables = _tables(page)
    new = {"Parts": (result.line,), "Files": result.rows, "Both drivers": result.compared}
    for title, lines in new.items():
        tables[title] |= {_name(line): line for line in lines}
    page.write_text("\n".join(_written(page.stem, tables)))


def _tables(page: Path) -> dict[str, dict[str, str]]:
    """The lines of each table by their first cells."""
    tables: dict[str, dict[str, str]] = {title: {} for title in _HEADS}
    title = ""
    for line in page.read_text().splitlines() if page.exists() else ():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif title in tables and line.startswith("|") and line not in _HEADS[title].split("\n"):
            tables[title][_name(line)] = line
    return tables


def _name(line: str) -> str:
    return line.split("|")[1].strip()


def _written(day: str, tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield f"# Test results of {day}\n"
    yield f"{platform.machine()}, Python {platform.python_version()}. `make test-full` writes this"
    yield "page, each part when it has ended. A busy machine changes the times."
    for title, lines in tables.items():
        if lines:
            order = [*PARTS].index if title == "Parts" else str
            yield f"\n## {title}\n"
            yield _HEADS[title]
            yield from (lines[name] for name in sorted(lines, key=order))  # type: ignore[arg-type]
    yield ""


if __name__ == "__main__":
    main()
