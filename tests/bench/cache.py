"""What a run of the cache manager costs, next to what it costs to read the same records.

python -m tests.bench.cache      needs root; prints a table (make bench-cache keeps it)
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from millpond.hosts.cache import list_templates
from tests.support.audit import started_processes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.many_servers import populate
from tests.support.millpond import Millpond
from tests.support.session import session_directory

SIZES = ((1250, 50), (2500, 100), (5000, 200))
"""Disks, and bases that they stand on."""
RUNS = 5

HEAD = """\
# A run of the cache manager

{date}, {machine}, Python {python}. `make bench-cache` writes this page. Every disk is an overlay
volume of a server with a record and a domain. The floor is reading the same records and templates
and nothing else. CPU is that of the process and of libvirtd, which a busy machine changes less
than the time of the clock. Medians of {runs} runs, after one that is not counted; processes are
those that the runs started.

| disks | bases | floor, CPU | run, CPU | run, clock | CPU a disk | clock a disk | processes |
|---|---|---|---|---|---|---|---|"""


class Clock:
    """Of the wall, and of the CPU that we and libvirtd take."""

    def __init__(self, libvirtd: PrivateLibvirtd) -> None:
        self._stat = Path(f"/proc/{libvirtd.pid}/stat")

    def _now(self) -> tuple[float, float]:
        fields = self._stat.read_text().rpartition(")")[2].split()
        of_libvirtd = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), time.process_time() + of_libvirtd

    def median(self, act: Callable[[], object]) -> tuple[float, float]:
        """Of the wall, of the CPU."""
        act()
        both = [self._seconds(act) for _ in range(RUNS)]
        wall, cpu = (statistics.median(each) for each in zip(*both, strict=True))
        return wall, cpu

    def _seconds(self, act: Callable[[], object]) -> tuple[float, float]:
        wall, cpu = self._now()
        act()
        wall_after, cpu_after = self._now()
        return wall_after - wall, cpu_after - cpu


def measured(libvirtd: PrivateLibvirtd, directory: Path, count: int, bases: int) -> float:
    """The CPU seconds that each disk takes."""
    directory.mkdir(mode=0o755)
    millpond = Millpond(directory=directory, uri=libvirtd.uri)
    millpond.configure()
    with libvirtd.connect() as connection:
        populate(millpond, connection, count, bases)
    host, clock = millpond.host(), Clock(libvirtd)
    rules = host.cache_rules.at_once()

    def read() -> None:
        assert host.records.all()
        assert list(list_templates(host))

    def run() -> None:
        assert host.cache_manager.prune(rules) == []

    with started_processes() as started:
        _, floor = clock.median(read)
        wall, cpu = clock.median(run)
    times = (f"{each:.2f} s" for each in (floor, cpu, wall))
    each = (f"{1000 * total / count:.2f} ms" for total in (cpu, wall))
    cells = (count, bases, *times, *each, len(started))
    print("|", " | ".join(map(str, cells)), "|", flush=True)
    libvirtd.clear()
    return cpu / count


def main() -> None:
    stated = {"machine": platform.machine(), "python": platform.python_version(), "runs": RUNS}
    print(HEAD.format(date=date.today(), **stated), flush=True)
    with session_directory() as directory, PrivateLibvirtd(directory / "libvirtd") as libvirtd:
        each = [measured(libvirtd, directory / f"{size[0]}", *size) for size in SIZES]
    times = f"{SIZES[-1][0] // SIZES[0][0]} times the disks and bases"
    print(f"\nWith {times}, a disk takes {each[-1] / each[0]:.2f} times the CPU: 1 is linear.")


if __name__ == "__main__":
    main()
