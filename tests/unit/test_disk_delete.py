"""Deleting a disk whose pool can keep a point in time of it."""

import pytest

from millpond.disks.backend import DiskRequest
from millpond.disks.disks import Disks
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.selection import Selection
from millpond.errors import CephUnreachable
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import Backend
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk
from millpond.model.sizes import MiB
from tests.support.few_disks import disks_of

REQUEST = DiskRequest(
    server=ServerId("web"), role="disk.data0", content=Content.DATA, size=MiB, target="vdb"
)


class Pools:
    def __init__(self) -> None:
        self.base = self.disks = MemoryPool("disks")

    def for_disk(self, _backend: Backend, _role: str = "disk") -> MemoryPool:
        return self.disks

    def ensure(self, _name: str) -> MemoryPool:
        return self.disks


class Unreachable(LibvirtStorage):
    """Its cluster answers nothing but what libvirt knows already."""

    def freeze(self, disk: Disk) -> None:
        raise CephUnreachable

    def thaw(self, disk: Disk) -> None:
        raise CephUnreachable


@pytest.fixture
def disks() -> Disks:
    backends = {Backend.QCOW2: Unreachable(Backend.QCOW2, Pools())}
    return disks_of(backends, selection=Selection())


def test_what_was_never_made_is_deleted_without_the_cluster(disks: Disks) -> None:
    """So that a create that failed there can be undone."""
    assert disks.native_snapshots(disks.plan(REQUEST))
    disks.delete(disks.plan(REQUEST))


def test_what_is_there_is_not_deleted_with_its_point_in_time(disks: Disks) -> None:
    made = disks.create(disks.plan(REQUEST), None)
    with pytest.raises(CephUnreachable):
        disks.delete(made)
    assert disks.exists(made)
