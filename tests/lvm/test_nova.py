"""Our driver for Nova, with Nova's own classes, on real logical volumes. There is no cloud in the
nested machine: what Nova's other services do is in tests/nova, on other backends."""

from collections.abc import Callable
from typing import Any

import pytest
from lxml import etree

from millpond.model.sizes import MiB
from tests.lvm.volume_group import VolumeGroup
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import driver_alone
from tests.support.openstack.environment import python

# A minute or two, most of it Nova's own start.
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.full,
    pytest.mark.skipif(
        not python().exists(),
        reason="Nova is not in the nested machine: make test-full PART=lvm-2",
    ),
]

SECONDS = 1500
POOL = "nova-disks-pool-lvm"

Found = dict[str, Any]
Run = Callable[..., Found]


@pytest.fixture
def run(libvirtd: PrivateLibvirtd, volume_group: VolumeGroup) -> Run:
    def run(*scenarios: str) -> Found:
        options = {"images_type": "lvm", "images_volume_group": volume_group.name}
        return driver_alone.run(
            libvirtd.directory,
            libvirtd,
            scenarios,
            {"libvirt": options},
            program=driver_alone.LVM,
            seconds=SECONDS,
        )

    return run


def test_disks_are_logical_volumes_from_their_making_to_their_end(run: Run) -> None:
    """All in one run, most of which is Nova's own start."""
    found = run("life_of_disks", "deleted_behind_its_back", "adopted_in_place")
    came = found["life_of_disks"]
    assert came["made"] == {"disk.swap": 16 * MiB, "disk.eph0": 16 * MiB}
    assert came["records"] == ["disk.config", "disk.eph0", "disk.swap"]
    check_source(came["described"], "disk.swap")
    size, where, zeros = came["grown"]
    assert (size, where) == (64 * MiB, 8 * MiB)
    assert zeros > 64 * MiB - 4096, "what is new is not what somebody wrote"
    assert came["deleted"] == [{}, ["disk.swap"]], "the other server's stays"
    assert not came["left"]
    assert came["in the end"] == {}

    assert found["deleted_behind_its_back"] == {}

    came = found["adopted_in_place"]
    assert came["concerned"]
    assert came["status"] == ["pike"]
    assert came["records"] == ["disk", "disk.swap"]
    assert came["pool"] == POOL
    check_source(came["described"], "disk")
    assert (came["status later"], came["revert"], came["records later"]) == ([], 0, [])
    assert came["same"], "no byte of it was copied or changed"
    assert came["found again"] == ["pike"]
    assert came["deleted"] == {}


def check_source(described: str, role: str) -> None:
    disk = etree.fromstring(described)
    source = disk.find("source")
    assert (disk.get("type"), source.get("pool")) == ("volume", POOL)
    assert source.get("volume").endswith(f"_{role}")
    assert disk.find("driver").get("type") == "raw"
