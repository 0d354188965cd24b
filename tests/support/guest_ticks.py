"""Looking at the micro guest while it ticks, and at the disks that it ticks on."""

import re
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import libvirt
from lxml import etree

from millpond.disks.backend import ImageFile
from millpond.model.formats import DiskFormat
from millpond.model.names import ServerId
from tests.support.millpond import Millpond
from tests.support.multi_host import MultiHost
from tests.support.waiting import wait_for

_SECTOR = 512
_TICK = 3 * _SECTOR
"""Where the guest keeps the number of its last tick."""


def last_tick(millpond: Millpond, id: str) -> int:
    """As the console says it: by then it has been written."""
    return int(re.findall(r"TICK ([0-9A-F]{4})\s", millpond.console(id))[-1], 16)


def wait_for_ticks(millpond: Millpond, id: str, more: int = 2) -> None:
    """Until the guest has written to its disk so many times."""
    end = last_tick(millpond, id) + more
    wait_for(lambda: last_tick(millpond, id) >= end, 60)


def tick_in(path: Path) -> int:
    """In a qcow2 image of the guest's disk."""
    flat = path.with_name("flat.raw")
    words = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(path), str(flat)]
    subprocess.run(words, check=True)
    return int(struct.unpack_from("<H", flat.read_bytes(), _TICK)[0])


def tick_on_disk(millpond: Millpond, name: str) -> int:
    """Of a server that is off."""
    host, path = millpond.host(), millpond.directory / "off.qcow2"
    disk = host.shared.server(name).disks[0]
    host.disks.extract(disk, ImageFile(path=path, format=DiskFormat.QCOW2))
    return tick_in(path)


@dataclass
class MovingGuest:
    """What it printed on each of its hosts, kept when the log is removed there."""

    hosts: MultiHost
    id: ServerId
    kept: dict[str, Path] = field(default_factory=dict)

    def keep_log(self, host: str) -> None:
        path = self.hosts.deployment().hosts[host].consoles.make(self.id)
        kept = path.parent.parent / f"{host}.log"
        self.hosts.hosts[host].run("ln", "-f", str(path), str(kept))
        self.kept[host] = kept

    def printed(self, host: str) -> str:
        there = self.hosts.hosts[host]
        return there.run("cat", str(self.kept[host])).stdout

    def ticks(self, *hosts: str) -> list[int]:
        shown = "".join(self.printed(host) for host in hosts)
        return [int(each, 16) for each in re.findall(r"TICK ([0-9A-F]{4})\s", shown)]

    def wait_for_ticks(self, *hosts: str, more: int = 10) -> None:
        self.keep_log(hosts[-1])
        end = len(self.ticks(*hosts)) + more
        wait_for(lambda: len(self.ticks(*hosts)) >= end, 60)

    def check_gapless(self, *hosts: str) -> None:
        """It still ticks, has not begun again, and has left no number out."""
        self.wait_for_ticks(*hosts)
        found = self.ticks(*hosts)
        assert found == list(range(1, len(found) + 1))


def disks(domain: libvirt.virDomain, flags: int = 0) -> list[str]:
    """Without the numbers that libvirt gives to layers, by the order in which it met them."""
    xml = etree.fromstring(domain.XMLDesc(flags))
    for numbered in xml.iterfind("devices/disk//*[@index]"):
        del numbered.attrib["index"]
    return [etree.tostring(each, encoding="unicode") for each in xml.findall("devices/disk")]


def chains(domain: libvirt.virDomain) -> tuple[list[str], list[str]]:
    """The disks as they are now, and as they will be at the next start."""
    return disks(domain), disks(domain, libvirt.VIR_DOMAIN_XML_INACTIVE)
