"""Whether two hosts have one pool: by marks, of which nothing is left."""

import pytest

from millpond.errors import NoSpace
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType
from millpond.libvirt.sharing import are_one
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec

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
