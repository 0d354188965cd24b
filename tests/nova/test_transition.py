"""Servers that Nova's own driver has made come into the pools, and back to that driver."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from tests.nova.conftest import Offer
from tests.nova.domains import forget_pools
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import NOVA, Deployment
from tests.support.openstack.user import CloudUser
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]

COUNT = 20
RATIOS = ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
"""For as many servers on a small machine."""
SECONDS = 60


@pytest.fixture
def nova(cloud: Cloud) -> Iterator[Deployment]:
    made = Deployment(cloud, NOVA)
    made.start(extra={"DEFAULT": dict.fromkeys(RATIOS, 32)})
    yield made
    made.restart()  # whose servers are to be deleted


@pytest.fixture
def pond(nova: Deployment, hypervisor: PrivateLibvirtd, workdir: Path) -> Iterator[Millpond]:
    """With pools in Nova's directory, where our driver, for other tests, has none."""
    forget_pools(hypervisor)
    made = Millpond(directory=workdir, uri=hypervisor.uri)
    made.configure(default=f"instances_path = {nova.instances}")
    yield made
    forget_pools(hypervisor)


@pytest.fixture
def servers(user: CloudUser, offer: Offer, nova: Deployment) -> list[Server]:
    """With disks of all kinds, from both formats; every second one runs. nova-compute ended."""
    made = [
        user.create(
            offer.images[("qcow2", "raw")[number // 2 % 2]],
            offer.flavor_with_all_disks,
            config_drive=True,
        )
        for number in range(COUNT)
    ]
    for number, each in enumerate(made):
        user.await_console(each, "READY")
        if number % 2:
            user.stop(each)
    nova.compute.stop()
    return made


def disk_files(nova: Deployment, server: Server) -> list[str]:
    directory = nova.instances / server.id
    found = os.listdir(directory) if directory.exists() else []
    return sorted(each for each in found if re.match(r"disk(\.(?!info)|$)", each))


def boots(nova: Deployment, server: Server) -> int:
    log = nova.instances / server.id / "console.log"
    return max(
        (int(each, 16) for each in re.findall(r"BOOTS ([0-9A-F]+)", log.read_text())), default=0
    )


def test_all_servers_of_a_compute_node_move_and_come_back(
    user: CloudUser, nova: Deployment, pond: Millpond, servers: list[Server]
) -> None:
    found = {each["id"]: each for each in pond.json("transition", "status")}
    assert set(found) == {each.id for each in servers}
    assert [each["in_the_way"] for each in found.values()] == [[]] * COUNT
    assert len(pond.json("server", "adopt", "--all", "--yes")) == COUNT
    names = {each["id"]: each["name"] for each in pond.json("server", "list")}
    before = {each.id: boots(nova, each) for each in servers}

    told = pond.json("transition", "run", "--all", "--live")
    assert [(each["disks"], each["error"]) for each in told] == [(4, "")] * COUNT
    assert [disk_files(nova, each) for each in servers] == [[]] * COUNT
    assert pond.json("transition", "status") == []
    pond.configure("images_type = libvirt-storage", f"instances_path = {nova.instances}")
    assert "no problem" in (said := pond.run("doctor").stdout), said
    states = {each["id"]: each["state"] for each in pond.json("server", "list")}
    assert [states[each.id] for each in servers] == ["running", "stopped"] * (COUNT // 2)

    for each in servers:
        pond.ok("server", "reboot", names[each.id], "--hard")
        wait_for(lambda each=each: boots(nova, each) > before[each.id], SECONDS)
        pond.ok("server", "stop", names[each.id], "--force")
        before[each.id] = boots(nova, each)
        pond.ok("transition", "revert", names[each.id])
    assert pond.json("server", "list") == []
    nova.run()
    for each in servers:
        user.reboot(each, "HARD")
        wait_for(lambda each=each: boots(nova, each) > before[each.id], SECONDS)
    assert [disk_files(nova, each) for each in servers] == [
        ["disk", "disk.config", "disk.eph0", "disk.swap"]
    ] * COUNT
