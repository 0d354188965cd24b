"""CD-ROM drives and detached disks, in a definition that keeps what people changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from millpond.model.formats import DiskFormat
from millpond.model.layer import Layer, VolumeSource
from millpond.model.server import CdromDrive, Content, Server
from millpond.servers.domain_xml import CDROM, domain_xml
from millpond.xml.domain import DiskXml, DomainXml
from millpond.xml.keeping import keep
from tests.unit.samples import disk, server

PLAIN = server()
DRIVE = CdromDrive(target="hda", bus="ide")
EMPTY = replace(PLAIN, cdrom=DRIVE)
MEDIUM = replace(
    disk(),
    role=CDROM,
    volume=f"{PLAIN.id}_{CDROM}",
    target="hda",
    bus="ide",
    content=Content.CDROM,
)
FULL = replace(PLAIN, disks=(*PLAIN.disks, MEDIUM), cdrom=replace(DRIVE, image=PLAIN.image))
DATA = replace(
    disk(DiskFormat.RAW, overlay=False),
    role="disk.data0",
    volume=f"{PLAIN.id}_disk.data0",
    target="vdb",
    content=Content.DATA,
    template=None,
)
ATTACHED = replace(PLAIN, disks=(*PLAIN.disks, DATA))
DETACHED = replace(PLAIN, disks=(*PLAIN.disks, replace(DATA, target="")))


def described(each: Server) -> DomainXml:
    chains = {
        disk.role: (
            Layer(source=VolumeSource(pool=disk.pool, volume=disk.volume), format=disk.format),
        )
        for disk in each.disks
    }
    return domain_xml(each, "owner", Path("/console.log"), chains)


def as_libvirt_has_it(xml: DomainXml) -> str:
    return replace(xml, memory_unit="KiB", memory=xml.memory // 1024).to_xml()


def defined(present: Server, ours: Server) -> dict[str, DiskXml]:
    kept = keep(as_libvirt_has_it(described(present)), described(ours), described(present))
    assert list(kept.lost) == []
    return {each.target: each for each in DomainXml.from_xml(kept.xml).disks}


@pytest.mark.parametrize("before", [EMPTY, PLAIN], ids=["drive", "no drive"])
def test_a_medium_is_inserted(before):
    drive = defined(before, FULL)["hda"]
    assert drive.source
    assert (drive.device, drive.source.volume, drive.read_only) == ("cdrom", MEDIUM.volume, True)


def test_a_medium_is_ejected_and_the_drive_stays_in_its_place():
    drive = defined(FULL, EMPTY)["hda"]
    assert (drive.device, drive.source, drive.boot_order, drive.serial) == (
        "cdrom",
        None,
        2,
        CDROM,
    )


def test_a_disk_is_detached_and_attached_again():
    assert set(defined(ATTACHED, DETACHED)) == {"vda"}
    assert defined(DETACHED, ATTACHED)["vdb"].serial == "disk.data0"


def test_serials_are_given_to_disks_that_have_none():
    old = described(ATTACHED)
    without = replace(old, disks=tuple(replace(each, serial=None) for each in old.disks))
    kept = keep(as_libvirt_has_it(without), old, without)
    assert [each.serial for each in DomainXml.from_xml(kept.xml).disks] == ["disk", "disk.data0"]
