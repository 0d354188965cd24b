"""Servers that older releases of Nova left on a compute node come into the pools, and back."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond
from tests.support.openstack.environment import reason_to_skip
from tests.support.openstack.nova_alone import DISKS, ComputeNode
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]

SECONDS = 60


@pytest.fixture(params=[25, 29], ids=["yoga", "caracal"])
def node(request: pytest.FixtureRequest, workdir: Path) -> Iterator[ComputeNode]:
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    with PrivateLibvirtd(workdir / "node", name="pond") as libvirtd:
        place = {"libvirtd": libvirtd, "directory": libvirtd.directory}
        yield ComputeNode(**place, release=request.param)


@pytest.mark.parametrize("images_type", ["qcow2", "raw"])
def test_they_come_into_the_pools_and_back(
    node: ComputeNode, micro_guest: MicroGuest, workdir: Path, images_type: str
) -> None:
    ids = node.run_nova(images_type, "create", micro_guest.path, "pike", "roach")
    runs, off = ids["pike"], ids["roach"]
    for each in ids.values():
        wait_for(lambda each=each: node.boots(each) == 1, SECONDS)
        assert node.disks(each) == DISKS
    with node.libvirtd.connect() as connection:
        connection.lookupByUUIDString(off).destroy()
    before = {role: _digest(node.instances / off / role) for role in DISKS}

    pond = Millpond(directory=workdir, uri=node.libvirtd.uri)
    pond.configure(default=f"instances_path = {node.instances}")
    found = {each["id"]: each for each in pond.json("transition", "status")}
    assert {id: each["in_the_way"] for id, each in found.items()} == {runs: [], off: []}
    pond.ok("server", "adopt", "--all", "--yes")
    told = pond.json("transition", "run", "--all", "--live")
    assert [(each["disks"], each["error"]) for each in told] == [(4, "")] * 2
    assert (node.disks(runs), node.disks(off)) == ([], [])
    assert pond.json("transition", "status") == []
    pool = node.instances / "disks"
    assert {role: _digest(pool / f"{off}_{role}") for role in DISKS} == before
    assert "no problem" in (said := pond.run("doctor").stdout), said

    names = {each["id"]: each["name"] for each in pond.json("server", "list")}
    with node.libvirtd.connect() as connection:
        assert connection.lookupByUUIDString(runs).isActive()
    for each, verb in ((runs, ("reboot", "--hard")), (off, ("start",))):
        pond.ok("server", *verb, names[each])
        wait_for(lambda each=each: node.boots(each) == 2, SECONDS)
        pond.ok("server", "stop", names[each], "--force")
        pond.ok("transition", "revert", names[each])
        assert node.disks(each) == DISKS
        node.run_nova(images_type, "reboot", each)
        wait_for(lambda each=each: node.boots(each) == 3, SECONDS)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
