"""What a run of the cache manager costs, beside what it costs to read the same records.

python -m tests.bench.cache      needs root; prints a table (make bench-cache keeps it)
"""

import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from tests.support.audit import started_processes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond
from tests.support.population import populate
from tests.support.session import session_directory

SIZES = ((1250, 50), (2500, 100), (5000, 200))
"""Disks, and bases that they stand on."""
RUNS = 5

HEAD = """\
# A run of the cache manager

{date}, {machine}, Python {python}. `make bench-cache` writes this page. Every disk is an overlay
volume of a server with a record and a domain. The floor is reading the same records and templates
and nothing else. Medians of {runs} runs, after one that is not counted; processes are those that
the runs started.

| disks | bases | floor | run | a disk | run / floor | processes |
|---|---|---|---|---|---|---|"""


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def median(act: Callable[[], object]) -> float:
    act()
    return statistics.median(seconds(act) for _ in range(RUNS))


def measure(millpond: Millpond) -> tuple[float, float, int]:
    cache, records = millpond.engine().cache, millpond.engine().records
    rules = cache.rules.at_once()

    def run() -> None:
        assert cache.manager.prune(rules) == []

    def read() -> None:
        assert records.all()
        assert list(cache.all())

    with started_processes() as started:
        return median(read), median(run), len(started)


def measured(libvirtd: PrivateLibvirtd, directory: Path, count: int, bases: int) -> float:
    """The seconds that each disk takes."""
    directory.mkdir(mode=0o755)
    millpond = Millpond(directory=directory, uri=libvirtd.uri)
    millpond.configure()
    with libvirtd.connect() as connection:
        populate(millpond, connection, count, bases)
    floor, run, started = measure(millpond)
    cells = (count, bases, f"{floor:.2f} s", f"{run:.2f} s", f"{1000 * run / count:.2f} ms")
    print("|", " | ".join(map(str, (*cells, f"{run / floor:.1f}", started))), "|", flush=True)
    libvirtd.clear()
    return run / count


def main() -> None:
    stated = {"machine": platform.machine(), "python": platform.python_version(), "runs": RUNS}
    print(HEAD.format(date=date.today(), **stated), flush=True)
    with session_directory() as directory, PrivateLibvirtd(directory / "libvirtd") as libvirtd:
        each = [measured(libvirtd, directory / f"{size[0]}", *size) for size in SIZES]
    times = f"{SIZES[-1][0] // SIZES[0][0]} times the disks and bases"
    print(f"\nWith {times}, a disk takes {each[-1] / each[0]:.2f} times as long: 1 is linear.")


if __name__ == "__main__":
    main()
