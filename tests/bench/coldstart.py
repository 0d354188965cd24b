"""How long a server of an image takes that the host has never seen, until its guest speaks.

python -m tests.bench.coldstart PLOT [MIB...]     needs root; prints a table (make bench-coldstart)
"""

import os
import platform
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from millpond.model.sizes import MiB, format_size
from tests.bench.paced_source import COUNT
from tests.bench.plot import Line, plot
from tests.support.guests import MicroGuest, build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond
from tests.support.session import session_directory
from tests.support.waiting import wait_for

SIZES = (64, 256, 2048)
"""MiB."""
RATES: Mapping[str, int] = {"unlimited": 0, "1 Gbit/s": 125_000_000}
RUNS = 3
TOGETHER = 8
"""Servers of one new image at once."""

HEAD = """\
# Cold starts

{date}, {machine}, Python {python}, {cores} cores, load {load:.1f}. `make bench-coldstart` writes
this page. From nothing on the host until the guest has printed its first line: `image add` of a
raw image on a web server of the loopback, then `server create`. The guest reads 512 bytes; the
image's bytes are random. Medians of {runs} runs, in seconds; read the ratios. *Fetched* is what
the source gave until the guest spoke, inspection included.

| source | image | downloaded | streamed | ratio | fetched |
|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    seconds: float
    fetched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    port: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def sent(self) -> int:
        with urllib.request.urlopen(self.url(COUNT)) as answer:
            return int(answer.read().split()[0])


class Bench:
    def __init__(self, directory: Path, daemon: PrivateLibvirtd) -> None:
        self._directory = directory
        self._daemon = daemon
        self._number = 0

    def millpond(self, *, streams: bool) -> Millpond:
        """A host that has never seen anything."""
        self._number += 1
        place = self._directory / f"host-{self._number}"
        place.mkdir()
        made = Millpond(directory=place, uri=self._daemon.uri)
        handler = "streaming" if streams else "downloading"
        cache = f"[image_cache]\nsockets_path = {place}/run"
        pools = f"base_images_pool = bases-{self._number}\ndisks_pool = disks-{self._number}"
        made.configure(
            f"images_type = qcow2\n{pools}", default=f"template_image_handler = {handler}\n{cache}"
        )
        made.make_pools()
        return made

    def download(self, source: Source, path: Path, root: str) -> Run:
        return self._measure(source, self.millpond(streams=False), path, ())

    def stream(self, source: Source, path: Path, root: str) -> Run:
        words = ("--stream", "--index-root", root)
        return self._measure(source, self.millpond(streams=True), path, words)

    def _measure(
        self, source: Source, millpond: Millpond, path: Path, words: tuple[str, ...]
    ) -> Run:
        before, started = source.sent(), time.perf_counter()
        millpond.ok("image", "add", source.url(f"/{path.name}"), *words, "--name", "guest")
        id = create(millpond, "web")
        wait_for(lambda: "READY" in millpond.console(id), 120)
        run = Run(seconds=time.perf_counter() - started, fetched=source.sent() - before)
        tidy(millpond)
        return run

    def together(self, source: Source, path: Path, root: str) -> tuple[float, float, int]:
        """Seconds until the first and the last of them speak, and what was fetched when all of
        the image was there."""
        millpond = self.millpond(streams=True)
        words = ("--stream", "--index-root", root, "--name", "guest")
        before, started = source.sent(), time.perf_counter()
        millpond.ok("image", "add", source.url(f"/{path.name}"), *words)
        found: list[float] = []

        def one(number: int) -> None:
            id = create(millpond, f"web{number}")
            wait_for(lambda: "READY" in millpond.console(id), 240)
            found.append(time.perf_counter() - started)

        threads = [threading.Thread(target=one, args=(each,)) for each in range(TOGETHER)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        wait_for(lambda: not arriving(millpond), 300)
        fetched = source.sent() - before
        tidy(millpond)
        return min(found), max(found), fetched


def create(millpond: Millpond, name: str) -> str:
    words = ("--image", "guest", "--memory", "16M", "--network", "none", "--no-config-drive")
    return str(millpond.json("server", "create", name, *words)["id"])


def arriving(millpond: Millpond) -> bool:
    (found,) = millpond.json("cache", "list")["templates"]
    return found["template"]["link"] is not None


def tidy(millpond: Millpond) -> None:
    """What a run leaves must not slow the next one."""
    for each in millpond.json("server", "list"):
        words = ("server", "delete", each["name"])
        wait_for(lambda words=words: not millpond.run(*words).returncode, 60)  # one is moved still
    millpond.ok("image", "remove", "guest")
    host = millpond.host()
    for each in (host.pool_plan.disks, host.pool_plan.base):
        with host.libvirtd.calling("removing a pool") as connection:
            pool = connection.storagePoolLookupByName(each.name)
            pool.destroy()
            pool.undefine()
    subprocess.run(["rm", "-rf", str(millpond.directory)], check=True)


def make_image(guest: MicroGuest, path: Path, mib: int) -> None:
    made = random.Random(mib)
    with path.open("wb") as file:
        file.write(guest.path.read_bytes())
        for _ in range(mib - 1):
            file.write(made.randbytes(MiB))


@contextmanager
def serving(directory: Path, rate: int) -> Iterator[Source]:
    words = [sys.executable, "-m", "tests.bench.paced_source", str(directory), str(rate)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Source(port=int(process.stdout.readline()))
        finally:
            process.kill()


def median(runs: list[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(map(value, runs))


def show(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    where, sizes = Path(sys.argv[1]), [int(each) for each in sys.argv[2:]] or list(SIZES)
    stated = {"machine": platform.machine(), "python": platform.python_version()}
    now = {"date": date.today(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    print(HEAD.format(runs=RUNS, **stated, **now), flush=True)
    lines: dict[str, list[tuple[float, float]]] = {}
    with session_directory() as directory, PrivateLibvirtd(directory / "libvirtd") as daemon:
        bench, images = Bench(directory, daemon), directory / "images"
        images.mkdir()
        guest = build_micro_guest(directory / "micro.raw", marker="COLD")
        publisher = bench.millpond(streams=False)
        roots = {}
        for mib in sizes:
            make_image(guest, images / f"{mib}.raw", mib)
            roots[mib] = publisher.json("image", "index", images / f"{mib}.raw")["root"]
        for name, rate in RATES.items():
            with serving(images, rate) as source:
                for mib in sizes:
                    given = (source, images / f"{mib}.raw", roots[mib])
                    loads = [bench.download(*given) for _ in range(RUNS)]
                    streams = [bench.stream(*given) for _ in range(RUNS)]
                    one = median(loads, lambda each: each.seconds)
                    other = median(streams, lambda each: each.seconds)
                    fetched = format_size(int(median(streams, lambda each: each.fetched)))
                    size = format_size(mib * MiB)
                    show(name, size, f"{one:.2f}", f"{other:.2f}", f"{other / one:.2f}", fetched)
                    lines.setdefault(f"downloaded, {name}", []).append((mib, one))
                    lines.setdefault(f"streamed, {name}", []).append((mib, other))
        with serving(images, 0) as source:
            mib = sizes[min(1, len(sizes) - 1)]
            first, last, fetched = bench.together(source, images / f"{mib}.raw", roots[mib])
            print(
                f"\n{TOGETHER} servers of one new image of {format_size(mib * MiB)} at once: the "
                f"first speaks after {first:.1f} s, the last after {last:.1f} s; the image was "
                f"fetched {fetched / (mib * MiB):.2f} times, its inspection included."
            )
        daemon.clear()
    if len(sizes) > 1:
        where.write_text(plot("MiB", "seconds", [Line(k, v) for k, v in lines.items()]))
        print(f"\n![Cold starts]({where.name})")


if __name__ == "__main__":
    main()
