"""Whether two hosts have one pool: by marks, of which nothing is left."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from millpond.errors import NoSpace
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType
from millpond.libvirt.sharing import are_one
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Disk
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.servers.leftovers import is_one

LEFT = "millpond-shared-web-0"


def lvm(size: int = 8 * MiB) -> MemoryPool:
    """Where an empty volume takes all of its space."""
    return MemoryPool("disks", type_=PoolType.LOGICAL, size=size)


def test_one_that_sees_the_marks_of_the_other_is_the_same():
    one, other = lvm(), lvm()
    one.create(VolumeSpec(name=LEFT, format=DiskFormat.RAW, capacity=MiB))  # by a crash
    assert are_one(one, one, "web")
    assert not are_one(one, other, "web")
    assert (one.names(), other.names()) == ([], [])


@pytest.mark.parametrize("sizes", [(0, 8 * MiB), (8 * MiB, 0)])
def test_one_mark_is_enough_where_the_other_pool_is_full(sizes):
    assert not are_one(*map(lvm, sizes), "web")


def test_without_any_mark_it_is_not_known():
    with pytest.raises(NoSpace):
        are_one(lvm(0), lvm(0), "web")


def test_a_pool_that_cannot_be_looked_at_is_not_known():
    class Gone(MemoryPool):
        def refresh(self) -> None:
            raise ConnectionError

    one = lvm()
    with pytest.raises(ConnectionError):
        are_one(one, Gone("disks"), "web")
    assert one.names() == []


def root(volume: str = "web_disk") -> Disk:
    return Disk(
        role="disk",
        target="vda",
        pool="disks",
        volume=volume,
        format=DiskFormat.RAW,
        size=MiB,
        backend=Backend.RAW,
    )


@pytest.mark.parametrize("full", [False, True])
def test_two_files_that_changed_at_one_moment_are_two_unless_nobody_can_tell(full):
    """QEMU mirrors a write into both at once."""

    class Changed(MemoryPool):
        def find(self, name):
            found = super().find(name)
            return found and replace(found, changed=17)

        def create(self, spec):
            if full and spec.name != "web_disk":
                raise NoSpace("disks", MiB, 0)
            return super().create(spec)

    hosts = []
    for _ in range(2):
        pool = Changed("disks")
        pool.create(VolumeSpec(name="web_disk", format=DiskFormat.RAW, capacity=MiB))
        pools = SimpleNamespace(ensure=lambda _name, pool=pool: pool)
        hosts.append(SimpleNamespace(pools=pools))
    assert is_one(hosts[0], root(), hosts[1], root()) == full
