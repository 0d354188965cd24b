"""What it takes to move a server's disk to another host, next to plain copies of the same file.

python -m tests.bench.moves      needs root and rsync; prints a table (make bench-moves keeps it)
"""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from lxml import etree

from millpond.model.sizes import GiB, MiB, format_size
from tests.support.guests import build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopfs import loop_filesystem
from tests.support.millpond import converted
from tests.support.multi_host import MultiHost
from tests.support.session import session_directory

NAMES = ("alder", "birch")
RUNS = 4
"""Even: afterwards it is where it was."""
DATA, PIECE = 512 * MiB, 16 * MiB
VIRTUAL = 10 * GiB

HEAD = """\
# Moving a server

{date}, {machine}, Python {python}, load {load:.1f}. `make bench-moves` writes this page. A
server's root disk is an overlay of {virtual} with {data} of data, in pieces, and its template is
at the destination. Both hosts are on this machine, each with its pools on an ext4 of its own;
every way ends with that being written to its device. Medians of {runs} runs, there and back in
turns; read the ratios. `server migrate` also claims, reads the copy back to verify it, defines the
domain and removes the source; plain copies only copy the file, whose template would not be found
at another path. The last two ways are of a server that runs, and whose guest writes once a second;
virsh copies its template with it.

| way | seconds | times rsync | bytes at the destination | of the overlay's |
|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    hosts: MultiHost
    places: dict[str, Path]
    """Of their disks."""

    @property
    def source(self) -> str:
        return self.hosts.where("web")

    @property
    def destination(self) -> str:
        (other,) = (each for each in NAMES if each != self.source)
        return other

    @property
    def volume(self) -> str:
        return self.hosts.deployment().server("web").disks[0].volume

    @property
    def path(self) -> Path:
        return self.places[self.source] / self.volume

    def migrate(self) -> Path:
        """It is off."""
        self.hosts.ok("server", "migrate", "web", "--host", self.destination)
        return self.path

    def migrate_live(self) -> Path:
        self.hosts.ok("server", "migrate", "web", "--live", "--host", self.destination)
        return self.path

    def virsh(self) -> Path:
        """Behind Millpond's back: the next time it goes back. What it leaves is removed."""
        ends = [
            (self.hosts.hosts[name].uri, self.places[name] / self.volume)
            for name in (self.source, self.destination)
        ]
        (own, here), (other, there) = ends if ends[0][1].exists() else ends[::-1]
        xml = self.hosts.directory / "web.xml"
        xml.write_text(_with_plain_disk(_virsh(own, "dumpxml", "--migratable", "web"), there))
        flags = ("--live", "--persistent", "--undefinesource", "--copy-storage-all")
        where = ("--migrateuri", "tcp://127.0.0.1", "--listen-address", "127.0.0.1")
        told = ("--xml", str(xml), "--persistent-xml", str(xml))
        _virsh(own, "migrate", *flags, *where, *told, "web", other)
        _virsh(own, "vol-delete", here.name, "nova-disks-pool")
        return there

    def copy(self, *words: str) -> Path:
        copy = self.places[self.destination].parent / "copy"
        subprocess.run([*words, self.path, copy], check=True)
        return copy


def _virsh(uri: str, *words: str) -> str:
    command = ["virsh", "--quiet", "-c", uri, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _with_plain_disk(definition: str, path: Path) -> str:
    """Its disk is one file there, as virsh copies it."""
    root = etree.fromstring(definition)
    for disk in root.iterfind("devices/disk"):
        disk.set("type", "file")
        for each in (*disk.findall("source"), *disk.findall("backingStore")):
            disk.remove(each)
        etree.SubElement(disk, "source", file=str(path))
    return etree.tostring(root, encoding="unicode")


Way = Callable[[Bench], Path]
"""What it made at the destination."""
RSYNC = "rsync --sparse"
WAYS: dict[str, Way] = {
    RSYNC: lambda bench: bench.copy("rsync", "--sparse", "--whole-file"),
    "cp --sparse=always": lambda bench: bench.copy("cp", "--sparse=always", "--reflink=never"),
    "server migrate (off)": Bench.migrate,
}
RUNNING: dict[str, Way] = {
    "server migrate --live": Bench.migrate_live,
    "virsh migrate --copy-storage-all": Bench.virsh,
}
"""Of a guest that writes once a second."""


def measure(bench: Bench, way: Way) -> tuple[float, int]:
    """Seconds, and bytes that are there then."""
    started = time.perf_counter()
    made = way(bench)
    subprocess.run(["sync", "--file-system", made.parent], check=True)
    seconds = time.perf_counter() - started
    taken = made.stat().st_blocks * 512
    if made.name == "copy":
        made.unlink()
    return seconds, taken


def write_data(path: Path) -> None:
    count = DATA // PIECE
    words = [
        word
        for number in range(count)
        for word in ("-c", f"write -P {number + 1} {number * (VIRTUAL // count)} {PIECE}")
    ]
    subprocess.run(["qemu-io", "-f", "qcow2", *words, path], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def two_hosts(directory: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        places = {
            name: stack.enter_context(loop_filesystem("ext4", 24 * GiB, directory / f"fs-{name}"))
            for name in NAMES
        }
        daemons = {
            name: stack.enter_context(PrivateLibvirtd(directory / name, name=name))
            for name in NAMES
        }
        for each in places.values():
            each.path.chmod(0o755)
        hosts = MultiHost(directory=directory, uri="", hosts=daemons, place=directory / "there")
        own = {
            name: f"base_images_pool_path = {each.path}/bases\ndisks_pool_path = {each.path}/disks"
            for name, each in places.items()
        }
        hosts.configure(own, enabled=NAMES)
        yield Bench(hosts=hosts, places={name: places[name].path / "disks" for name in NAMES})
        for daemon in daemons.values():
            daemon.clear()


def main() -> None:
    stated = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "runs": RUNS,
        "load": os.getloadavg()[0],
    }
    sizes = {"virtual": format_size(VIRTUAL), "data": format_size(DATA)}
    print(HEAD.format(date=date.today(), **stated, **sizes), flush=True)
    with session_directory() as directory, two_hosts(directory) as bench:
        guest = build_micro_guest(directory / "micro.raw", marker="MOVES")
        bench.hosts.ok("image", "add", converted(guest, "qcow2", directory), "--name", "micro")
        for name, host in (("other", "birch"), ("web", "alder")):
            words = ("--image", "micro", "--memory", "16M", "--disk", "10G", "--no-start")
            words = (*words, "--no-config-drive", "--network", "none")
            bench.hosts.ok("server", "create", name, *words, "--host", host)
        bench.hosts.ok("server", "delete", "other")
        write_data(bench.path)
        allocated = bench.path.stat().st_blocks * 512
        found = {name: [measure(bench, way) for _ in range(RUNS)] for name, way in WAYS.items()}
        bench.hosts.ok("server", "start", "web")
        for name, way in RUNNING.items():
            found[name] = [measure(bench, way) for _ in range(RUNS)]
        plain = statistics.median(seconds for seconds, _ in found[RSYNC])
        for name, runs in found.items():
            seconds = statistics.median(each for each, _ in runs)
            taken = max(each for _, each in runs)
            shown = (f"{seconds:.2f}", f"{seconds / plain:.2f}", format_size(taken))
            print("|", " | ".join((name, *shown, f"{taken / allocated:.3f}")), "|", flush=True)


if __name__ == "__main__":
    main()
