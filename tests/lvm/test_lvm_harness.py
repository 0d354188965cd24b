"""LVM in the nested machine, and what libvirt's logical pools do that nobody expects."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import libvirt
import pytest
from lxml import etree

from tests.lvm.volume_group import EXTENT, VolumeGroup
from tests.real.test_harness import domain_element, element, make_pool, xml
from tests.support.guests import MicroGuest
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full  # facts of LVM and libvirt, which change with their versions

MIB = 1024**2
POOL = "logical"
GUEST = "libvirt-qemu"

# An emulated machine in an emulated machine: five seconds as a rule.
READY_SECONDS = 60


@pytest.fixture
def pool(connection: libvirt.virConnect, volume_group: VolumeGroup) -> libvirt.virStoragePool:
    made = connection.storagePoolDefineXML(pool_xml(volume_group.name))
    made.create()
    return made


@pytest.fixture
def images(connection: libvirt.virConnect, workdir: Path) -> libvirt.virStoragePool:
    return make_pool(connection, "images", workdir / "images")


@pytest.fixture
def used_space(volume_group: VolumeGroup) -> None:
    """The group's first 64 MiB were somebody's volume."""
    write(volume_group.create("old", 64 * MIB), b"\xaa" * (64 * MIB))
    volume_group.clear()


@pytest.fixture
def running(
    pool: libvirt.virStoragePool,
    volume_group: VolumeGroup,
    micro_guest: MicroGuest,
    workdir: Path,
) -> libvirt.virDomain:
    """A guest that runs on the volume `disk`."""
    pool.createXML(volume_xml("disk", EXTENT))
    write(volume_group.path("disk"), micro_guest.path.read_bytes())
    console = workdir / "console.log"
    domain = pool.connect().defineXML(xml(domain_element("server", console, pool=POOL)))
    domain.create()
    wait_for(lambda: console.exists() and "READY" in console.read_text(), READY_SECONDS)
    assert micro_guest.marker in console.read_text()
    return domain


def pool_xml(group: str) -> str:
    source = element("source", element("name", group))
    return xml(element("pool", element("name", POOL), source, type="logical"))


def volume_xml(name: str, size: int, *, allocation: int | None = None, origin: str = "") -> str:
    parts = [element("name", name), element("capacity", str(size))]
    if allocation is not None:
        parts.append(element("allocation", str(allocation)))
    if origin:
        parts.append(element("backingStore", element("path", origin)))
    return xml(element("volume", *parts))


def add_image(
    images: libvirt.virStoragePool, guest: MicroGuest, format: str, size: int = MIB
) -> libvirt.virStorageVol:
    """The guest in this format, on a disk of this size."""
    path = directory(images) / format
    words = ["qemu-img", "convert", "-f", "raw", "-O", format, str(guest.path), str(path)]
    subprocess.run(words, check=True)
    subprocess.run(["qemu-img", "resize", "-q", "-f", format, str(path), str(size)], check=True)
    images.refresh()
    return images.storageVolLookupByName(format)


def directory(pool: libvirt.virStoragePool) -> Path:
    return Path(etree.fromstring(pool.XMLDesc()).findtext("target/path"))


def write(path: Path, content: bytes) -> None:
    with path.open("r+b") as device:
        device.write(content)
        os.fsync(device.fileno())


def sizes(volume: libvirt.virStorageVol) -> tuple[int, int]:
    """Capacity and allocation."""
    _type, capacity, allocation = volume.info()
    return capacity, allocation


def owner(path: Path) -> str:
    return pwd.getpwuid(path.stat().st_uid).pw_name


@contextmanager
def refused(code: int, message: str) -> Iterator[None]:
    with pytest.raises(libvirt.libvirtError, match=message) as caught:
        yield
    assert caught.value.get_error_code() == code


# The harness


def test_a_guest_on_a_logical_volume_owns_it_while_it_runs(
    running: libvirt.virDomain, volume_group: VolumeGroup
) -> None:
    disk = etree.fromstring(running.XMLDesc()).find("devices/disk")
    assert (disk.get("type"), disk.find("driver").get("type")) == ("volume", "raw")
    assert dict(disk.find("source").attrib) == {"pool": POOL, "volume": "disk", "index": "1"}
    assert owner(volume_group.path("disk")) == GUEST
    running.destroy()
    assert owner(volume_group.path("disk")) == "root"


# Sizes


def test_sizes_round_up_to_extents(pool: libvirt.virStoragePool) -> None:
    assert sizes(pool.createXML(volume_xml("small", 1))) == (EXTENT, EXTENT)
    assert sizes(pool.createXML(volume_xml("odd", EXTENT + 1))) == (2 * EXTENT, 2 * EXTENT)


def test_libvirt_does_not_grow_a_volume_and_sees_what_lvm_did_after_a_refresh(
    pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    volume = pool.createXML(volume_xml("disk", EXTENT))
    with refused(libvirt.VIR_ERR_NO_SUPPORT, "does not support changing of volume capacity"):
        volume.resize(2 * EXTENT)
    volume_group.extend("disk", 2 * EXTENT)
    assert sizes(volume) == (EXTENT, EXTENT)
    pool.refresh()
    assert sizes(volume) == (2 * EXTENT, 2 * EXTENT)


def test_a_running_guest_gets_its_grown_volume_by_block_resize(
    running: libvirt.virDomain, volume_group: VolumeGroup
) -> None:
    def resize(size: int) -> None:
        running.blockResize("vda", size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    with refused(libvirt.VIR_ERR_INTERNAL_ERROR, "Cannot grow device files"):
        resize(3 * EXTENT)
    volume_group.extend("disk", 3 * EXTENT)
    assert running.blockInfo("vda")[0] == EXTENT
    resize(3 * EXTENT)
    assert running.blockInfo("vda")[0] == 3 * EXTENT
    # The guest is left running on purpose: the fixtures must end it before they remove its disk.


def test_a_full_group_is_refused_and_nothing_is_left(
    pool: libvirt.virStoragePool,
    volume_group: VolumeGroup,
    images: libvirt.virStoragePool,
    micro_guest: MicroGuest,
) -> None:
    too_large = volume_xml("disk", volume_group.free() + 1)
    with refused(libvirt.VIR_ERR_INTERNAL_ERROR, "insufficient free space"):
        pool.createXML(too_large)
    with refused(libvirt.VIR_ERR_INTERNAL_ERROR, "insufficient free space"):
        pool.createXMLFrom(too_large, add_image(images, micro_guest, "raw"))
    assert volume_group.volumes() == {}
    assert pool.listVolumes() == []


# Less allocated than its capacity: LVM makes a snapshot of nothing with so much room for changes


def test_a_volume_of_less_allocation_than_capacity_breaks_when_more_is_written(
    pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    volume = pool.createXML(volume_xml("disk", 8 * EXTENT, allocation=0))
    assert sizes(volume) == (8 * EXTENT, EXTENT)
    assert volume_group.volumes() == {"disk": EXTENT, "[disk_vorigin]": 8 * EXTENT}
    with pytest.raises(OSError, match="Input/output error"):
        write(volume_group.path("disk"), b"!" * (2 * EXTENT))
    with pytest.raises(OSError, match="Input/output error"):
        volume_group.path("disk").read_bytes()
    pool.refresh()
    assert pool.listVolumes() == []


def test_a_copy_larger_than_its_allocation_is_broken_and_no_error(
    pool: libvirt.virStoragePool,
    volume_group: VolumeGroup,
    images: libvirt.virStoragePool,
    micro_guest: MicroGuest,
) -> None:
    """The capacity follows the source (trap 6), and the allocation does not."""
    source = add_image(images, micro_guest, "qcow2", size=2 * EXTENT)
    copy = pool.createXMLFrom(volume_xml("disk", EXTENT, allocation=EXTENT), source)
    assert sizes(copy) == (2 * EXTENT, EXTENT)
    with pytest.raises(OSError, match="Input/output error"):
        volume_group.path("disk").read_bytes()


# Content


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_a_copy_is_raw_and_ends_in_what_was_there_before(
    used_space: None,
    pool: libvirt.virStoragePool,
    volume_group: VolumeGroup,
    images: libvirt.virStoragePool,
    micro_guest: MicroGuest,
    format: str,
) -> None:
    source = add_image(images, micro_guest, format)
    copy = pool.createXMLFrom(volume_xml("disk", 2 * EXTENT), source)
    assert sizes(copy) == (2 * EXTENT, 2 * EXTENT)
    content = volume_group.path("disk").read_bytes()
    assert content[:MIB] == micro_guest.path.read_bytes()
    assert content[MIB:] == b"\xaa" * (2 * EXTENT - MIB)


def test_a_new_volume_holds_what_was_there_before_until_it_is_wiped(
    used_space: None, pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    volume = pool.createXML(volume_xml("disk", EXTENT))
    content = volume_group.path("disk").read_bytes()
    assert (content[:4096], content[4096:]) == (bytes(4096), b"\xaa" * (EXTENT - 4096))
    volume.wipe()
    assert volume_group.path("disk").read_bytes() == bytes(EXTENT)


def test_bytes_that_look_like_qcow2_are_bytes(
    pool: libvirt.virStoragePool,
    volume_group: VolumeGroup,
    images: libvirt.virStoragePool,
    workdir: Path,
) -> None:
    """trap 2 is not there: libvirt probes no logical volume."""
    header = workdir / "header"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"]
    subprocess.run([*words, str(header)], check=True)
    volume = pool.createXML(volume_xml("disk", EXTENT))
    write(volume_group.path("disk"), header.read_bytes())
    pool.refresh()
    assert etree.fromstring(volume.XMLDesc()).find("target/format") is None
    images.createXMLFrom(volume_xml("copy", EXTENT, allocation=0), volume)
    assert (directory(images) / "copy").read_bytes() == volume_group.path("disk").read_bytes()


# Deleting, and the pool itself


def test_a_deleted_volume_is_gone_from_the_group(
    pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    volume = pool.createXML(volume_xml("disk", EXTENT))
    with refused(libvirt.VIR_ERR_STORAGE_VOL_EXIST, "'disk' exists already"):
        pool.createXML(volume_xml("disk", EXTENT))
    volume.delete()
    assert volume_group.volumes() == {}
    assert pool.listVolumes() == []


def test_an_origin_takes_its_snapshots_with_it(
    pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    origin = pool.createXML(volume_xml("base", EXTENT))
    pool.createXML(volume_xml("overlay", EXTENT, origin=origin.path()))
    origin.delete()
    assert volume_group.volumes() == {}
    assert pool.listVolumes() == ["overlay"]  # until a refresh
    pool.refresh()
    assert pool.listVolumes() == []


def test_a_volume_in_use_stays_and_so_does_its_pool(
    running: libvirt.virDomain, pool: libvirt.virStoragePool
) -> None:
    with refused(libvirt.VIR_ERR_INTERNAL_ERROR, "disk in use"):
        pool.storageVolLookupByName("disk").delete()
    with refused(libvirt.VIR_ERR_INTERNAL_ERROR, "Can't deactivate volume group"):
        pool.destroy()
    assert pool.isActive()
    assert running.isActive()


def test_a_stopped_pool_takes_the_nodes_of_its_volumes_away(
    pool: libvirt.virStoragePool, volume_group: VolumeGroup
) -> None:
    pool.createXML(volume_xml("disk", EXTENT))
    pool.destroy()
    assert not volume_group.path("disk").exists()
    pool.create()
    assert volume_group.path("disk").is_block_device()


def test_a_missing_group_is_refused(connection: libvirt.virConnect) -> None:
    defined = connection.storagePoolDefineXML(pool_xml("nowhere"))
    with refused(libvirt.VIR_ERR_CONFIG_UNSUPPORTED, "cannot find logical volume group name"):
        defined.create()
