"""What a record calls made has left the page cache."""

import fcntl
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.disks.backend import DiskRequest
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Content, Disk, TemplateRef
from millpond.model.sizes import MiB
from millpond.model.template import Link, Prepared, Template
from millpond.system import qemu_img
from tests.support.loopfs import MakeFilesystem
from tests.support.millpond import Millpond

SERVER = ServerId("0b8f1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d")

_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap) in linux/fs.h
_DELAYED = 0x4  # FIEMAP_EXTENT_DELALLOC in linux/fiemap.h: no block of the device has it yet
_HEAD, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQQQIIII")
_MOST = 256


def unsynced(path: Path) -> int:
    """Bytes of a file that are in memory alone."""
    buffer = bytearray(_HEAD.pack(0, 2**64 - 1, 0, 0, _MOST, 0) + bytes(_MOST * _EXTENT.size))
    with open(path, "rb") as file:
        fcntl.ioctl(file.fileno(), _FIEMAP, buffer)
    count = _HEAD.unpack_from(buffer)[3]
    found = (_EXTENT.unpack_from(buffer, _HEAD.size + i * _EXTENT.size) for i in range(count))
    return sum(each[2] for each in found if each[5] & _DELAYED)


@pytest.fixture
def place(make_filesystem: MakeFilesystem) -> Path:
    """ext4 gives blocks to what is written when it is synced, or half a minute later."""
    return make_filesystem("ext4", 256 * MiB).path


def make_disk(
    millpond: Millpond, place: Path, backend: Backend, template: Template | None
) -> Disk:
    millpond.configure(default=f"instances_path = {place}")
    storage = millpond.host().storage(backend)
    reference = template and TemplateRef(
        pool=template.pool, volume=template.volume, format=template.format
    )
    content = Content.IMAGE if template else Content.DATA
    request = DiskRequest(server=SERVER, role="disk", content=content, size=16 * MiB)
    planned = storage.plan(request, reference)
    return storage.create(replace(planned, overlay=False), template)


def linked(path: Path, size: int) -> Template:
    return Template(
        image=ImageId("linked"),
        image_digest="",
        pool="nova-base-images-pool",
        volume="linked",
        format=DiskFormat.RAW,
        virtual_size=size,
        size=size,
        prepared=Prepared.LINK,
        digest=None,
        created="",
        link=Link(location="cinder://volume", file=FileSource(path=str(path))),
    )


@pytest.mark.parametrize("backend", [Backend.RAW, Backend.QCOW2, Backend.PLOOP])
def test_a_disk_that_qemu_img_filled_is_synced_when_it_is_made(millpond, place, workdir, backend):
    source = workdir / "linked.raw"
    source.write_bytes(b"x" * 8 * MiB)
    disk = make_disk(millpond, place, backend, linked(source, 8 * MiB))
    assert unsynced(place / "disks" / disk.volume) == 0


def test_what_libvirt_uploaded_is_synced_when_it_is_made(millpond, place):
    disk = make_disk(millpond, place, Backend.RAW, None)
    millpond.host().storage(Backend.RAW).fill(disk, b"x" * MiB)
    assert unsynced(place / "disks" / disk.volume) == 0


def test_a_conversion_is_synced_when_it_ends(place, workdir):
    source = workdir / "source.raw"
    source.write_bytes(b"x" * 8 * MiB)
    qemu_img.convert(source, DiskFormat.RAW, place / "converted", DiskFormat.RAW)
    assert unsynced(place / "converted") == 0
    (place / "written").write_bytes(b"x" * MiB)
    assert unsynced(place / "written") == MiB  # what a file is like that nobody synced
