"""What it takes to find and move the disks of a compute node out of Nova's legacy layout.

python -m tests.bench.transition [SERVERS]   needs root; prints a table (make bench-transition
                                             keeps it)
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import libvirt

from tests.support.guests import build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import COMMAND, Millpond
from tests.support.nova_tree import NovaServer, disk_xml
from tests.support.session import session_directory

HEAD = """\
# Out of Nova's legacy layout

{date}, {machine}, Python {python}, load {load:.1f}. `make bench-transition` writes this page.
{count} servers that are off, half of them with a raw disk and half with a qcow2 overlay, on the
file system of the pool. The floor is what cannot be less: the same files renamed and synced, and
the same domains defined once each. Python had compiled the command before, as pip does.

| what | seconds | ms per disk | times the floor |
|---|---|---|---|"""


def main(count: int) -> None:
    with session_directory() as directory:
        guest = build_micro_guest(directory / "micro.raw", marker="LEGACY")
        with PrivateLibvirtd(directory / "libvirtd") as daemon:
            millpond = Millpond(directory=directory / "work", uri=daemon.uri)
            millpond.directory.mkdir(mode=0o755)
            millpond.configure()
            os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            command(millpond, "transition", "status")
            run(millpond, libvirt.open(daemon.uri), guest.path, count)


def run(millpond: Millpond, connection: libvirt.virConnect, guest: Path, count: int) -> None:
    instances = millpond.state / "instances"
    instances.mkdir(parents=True, mode=0o755, exist_ok=True)
    servers = [NovaServer(instances=instances) for _ in range(count)]
    for number, each in enumerate(servers):
        disk = each.flat(guest) if number % 2 else each.overlay(guest)
        devices = disk_xml(disk, "raw" if number % 2 else "qcow2")
        names = {"name": f"web{number}", "domain": f"instance-{number}"}
        connection.defineXML(each.domain(devices, **names))
    print(
        HEAD.format(
            date=date.today(),
            machine=platform.machine(),
            python=platform.python_version(),
            load=os.getloadavg()[0],
            count=count,
        )
    )
    floor = timed(lambda: rename_all(servers, connection))
    found = timed(lambda: command(millpond, "transition", "status", "--json"))
    adopted = timed(lambda: command(millpond, "server", "adopt", "--all", "--yes"))
    moved = timed(lambda: command(millpond, "transition", "run", "--all"))
    after = timed(lambda: command(millpond, "transition", "status", "--json"))
    assert len(list(millpond.disks.iterdir())) == count
    for what, seconds in (
        ("renamed and defined: the floor", floor),
        ("transition status", found),
        ("server adopt --all", adopted),
        ("transition run --all", moved),
        ("transition status, with none left", after),
    ):
        row = (what, f"{seconds:.2f}", f"{1000 * seconds / count:.1f}", f"{seconds / floor:.2f}")
        print(f"| {' | '.join(row)} |")


def command(millpond: Millpond, *words: str) -> None:
    """Whole, with the start of Python: as a person waits for it."""
    told = [str(COMMAND), "--config-file", str(millpond.config), *words]
    subprocess.run(told, stdout=subprocess.DEVNULL, timeout=900, check=True)


def rename_all(servers: list[NovaServer], connection: libvirt.virConnect) -> None:
    """There and back, of which half counts."""
    for each in servers:
        for names in (("disk", "moved"), ("moved", "disk")):
            (each.directory / names[0]).rename(each.directory / names[1])
        descriptor = os.open(each.directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        xml = connection.lookupByUUIDString(each.id).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        connection.defineXML(xml)


def timed(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
