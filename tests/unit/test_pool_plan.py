"""Which pool a disk is made in: one answer, for those who make it and those who report it."""

import pytest

from millpond.libvirt.pool import PoolType
from millpond.libvirt.pools import PoolPlan, PoolWanted
from millpond.model.formats import Backend

PLAN = PoolPlan(
    base=PoolWanted(name="base", path="/base"),
    disks=PoolWanted(name="disks", path="/disks"),
    by_role={"disk.eph*": PoolWanted(name="fast", path="/fast")},
    by_backend={Backend.LVM: PoolWanted(name="lvm", path="/dev/vg", type=PoolType.LOGICAL)},
)


@pytest.mark.parametrize(
    ("backend", "role", "pool"),
    [
        (Backend.QCOW2, "disk", "disks"),
        (Backend.RAW, "disk.eph0", "fast"),
        (Backend.LVM, "disk", "lvm"),
        (Backend.LVM, "disk.eph0", "lvm"),
    ],
)
def test_a_backend_with_a_pool_of_its_own_has_all_its_disks_there(
    backend: Backend, role: str, pool: str
) -> None:
    assert PLAN.for_disk(backend, role).name == pool


@pytest.mark.parametrize(
    ("backends", "pools"),
    [
        ({Backend.QCOW2}, {"disks", "fast"}),
        ({Backend.LVM}, {"lvm"}),
        ({Backend.LVM, Backend.RAW, Backend.PLOOP}, {"disks", "fast", "lvm"}),
    ],
)
def test_the_pools_of_disks_are_those_that_the_backends_in_use_need(
    backends: set[Backend], pools: set[str]
) -> None:
    assert PLAN.of_disks(backends) == pools
