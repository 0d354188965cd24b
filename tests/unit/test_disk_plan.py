"""A disk that is asked for, and the disk that it leads to."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.disks.backend import DiskRequest
from millpond.disks.disks import Disks
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.selection import Selection
from millpond.errors import DiskTooSmall
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk
from millpond.model.sizes import MiB
from tests.support.few_disks import disks_of
from tests.support.memory_host import IMAGE

REQUEST = DiskRequest(server=ServerId("web"), role="disk")
SELECTION = Selection(mapping={ImageFormat.RAW: Backend.LVM})


class Pools:
    base = MemoryPool("base")

    def for_disk(self, backend: Backend, _role: str = "disk") -> MemoryPool:
        type_ = PoolType.LOGICAL if backend.has_own_pool else PoolType.DIR
        return MemoryPool(f"{backend}-pool", type_=type_)

    def ensure(self, name: str) -> MemoryPool:
        raise AssertionError("a plan looks at no pool but the one of the new disk")


@pytest.fixture
def disks() -> Disks:
    backends = (Backend.RAW, Backend.QCOW2, Backend.LVM)
    blanks: Any = SimpleNamespace(name=lambda content, size, _kind: f"{content}_{size // MiB}")
    return disks_of(
        {each: LibvirtStorage(each, Pools()) for each in backends},
        selection=SELECTION,
        blanks=lambda: blanks,
        base_pool="base",
    )


def template(disk: Disk) -> tuple[str, DiskFormat] | None:
    return disk.template and (disk.template.volume, disk.template.format)


def test_an_image_decides_its_backend_and_its_size(disks: Disks) -> None:
    disk = disks.plan(replace(REQUEST, image=IMAGE))
    assert (disk.backend, disk.pool, disk.size) == (Backend.LVM, "lvm-pool", IMAGE.virtual_size)
    assert disk.template
    assert (disk.template.pool, disk.template.format) == ("base", DiskFormat.RAW)
    assert not disk.overlay
    qcow2 = disks.plan(replace(REQUEST, image=replace(IMAGE, format=ImageFormat.QCOW2)))
    assert (qcow2.backend, qcow2.overlay) == (Backend.QCOW2, True)


def test_a_disk_is_as_large_as_is_asked_and_never_smaller_than_its_image(disks: Disks) -> None:
    larger = replace(REQUEST, image=IMAGE, size=2 * IMAGE.virtual_size)
    assert disks.plan(larger).size == 2 * IMAGE.virtual_size
    with pytest.raises(DiskTooSmall):
        disks.plan(replace(larger, size=IMAGE.virtual_size - 1))


def test_a_kernel_is_a_raw_copy_as_long_as_it_is(disks: Disks) -> None:
    kernel = replace(IMAGE, format=ImageFormat.AKI, size=5000, virtual_size=0)
    disk = disks.plan(replace(REQUEST, role="kernel", content=Content.KERNEL, image=kernel))
    assert (disk.backend, disk.size, disk.overlay) == (Backend.RAW, 5000, False)


def test_swap_of_nearly_one_size_shares_one_template(disks: Disks) -> None:
    for size in (16 * MiB, 16 * MiB - 1):
        disk = disks.plan(replace(REQUEST, content=Content.SWAP, size=size))
        assert (disk.backend, disk.size) == (Backend.QCOW2, 16 * MiB)
        assert template(disk) == ("swap_16", DiskFormat.RAW)


@pytest.mark.parametrize(
    ("content", "backend"), [(Content.DATA, Backend.QCOW2), (Content.CONFIG, Backend.RAW)]
)
def test_an_empty_disk_and_a_config_drive_have_no_template(
    disks: Disks, content: Content, backend: Backend
) -> None:
    disk = disks.plan(replace(REQUEST, content=content, size=1024))
    assert (disk.backend, disk.size, disk.template, disk.overlay) == (backend, 1024, None, False)
