"""Servers that older releases of Nova left on a compute node come into the pools, and back."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond
from tests.support.openstack import driver_alone
from tests.support.openstack.environment import reason_to_skip
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]

PROGRAM = driver_alone.PROGRAM.with_name("older_nova.py")
DISKS = ["disk", "disk.config", "disk.eph0", "disk.swap"]
SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    libvirtd: PrivateLibvirtd
    release: int
    images_type: str

    @property
    def instances(self) -> Path:
        return self.libvirtd.directory / "instances"

    def run_nova(self, verb: str, word: object) -> dict[str, str]:
        """It does that and ends, as a nova-compute that is stopped for good."""
        own = {
            "DEFAULT": {"compute_driver": "libvirt.LibvirtDriver", "mkisofs_cmd": "genisoimage"},
            "libvirt": {"images_type": self.images_type},
            "api_database": {"connection": f"sqlite:///{self.libvirtd.directory}/nova.sqlite"},
        }
        words = (PROGRAM, verb, word)
        place = (self.libvirtd.directory, self.libvirtd)
        done = driver_alone.start(*place, *words, extra=own, release=self.release)
        assert done.returncode == 0, done.stderr[-5000:]
        made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return made

    def boots(self, id: str) -> int:
        log = (self.instances / id / "console.log").read_text()
        return max((int(each, 16) for each in re.findall(r"BOOTS ([0-9A-F]+)", log)), default=0)

    def files(self, id: str) -> list[str]:
        found = os.listdir(self.instances / id)
        return sorted(each for each in found if re.match(r"disk(\.(?!info)|$)", each))


@pytest.fixture(params=["qcow2", "raw"])
def images_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[25, 29], ids=["yoga", "caracal"])
def node(request: pytest.FixtureRequest, images_type: str, workdir: Path) -> Iterator[ComputeNode]:
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    with PrivateLibvirtd(workdir / "node", name="pond") as libvirtd:
        yield ComputeNode(libvirtd=libvirtd, release=request.param, images_type=images_type)


def test_they_come_into_the_pools_and_back(
    node: ComputeNode, micro_guest: MicroGuest, workdir: Path
) -> None:
    ids = node.run_nova("create", micro_guest.path)
    runs, off = ids["pike"], ids["roach"]
    for each in ids.values():
        wait_for(lambda each=each: node.boots(each) == 1, SECONDS)
        assert node.files(each) == DISKS
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
    assert (node.files(runs), node.files(off)) == ([], [])
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
        assert node.files(each) == DISKS
        node.run_nova("reboot", each)
        wait_for(lambda each=each: node.boots(each) == 3, SECONDS)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
