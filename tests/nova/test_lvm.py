"""Disks on LVM: nova-compute runs in the nested machine, whose kernel has it, and the rest of the
cloud beside it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from millpond.model.sizes import GiB, MiB
from tests.nova.conftest import Offer
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.nested import NestedCompute, NestedHypervisor, NestedMachine
from tests.support.openstack.nova import Sections
from tests.support.openstack.user import CloudUser

# Everything takes ten times its time there.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]
PATIENCE = 600

POOL = "nova-disks-pool-lvm"
MAPPING = "raw:lvm, qcow2:qcow2"
DISKS = {"disk": GiB, "disk.eph0": GiB, "disk.swap": 64 * MiB}
"""Of the flavor with all of them."""


@pytest.fixture(scope="module")
def machine(cloud: Cloud, session_directory: Path) -> Iterator[NestedMachine]:
    directory, log = session_directory / "nested", session_directory / "nested.log"
    with NestedMachine(directory, log, cloud.ports, "fen", "mire") as started:
        yield started


@pytest.fixture(scope="module")
def fen(machine: NestedMachine) -> NestedHypervisor:
    return NestedHypervisor(machine, "fen")


@pytest.fixture(scope="module")
def mire(machine: NestedMachine) -> NestedHypervisor:
    return NestedHypervisor(machine, "mire")


def storage(hypervisor: NestedHypervisor) -> Sections:
    """For both drivers."""
    return {
        "DEFAULT": {"rpc_response_timeout": 300},
        "libvirt": {"images_type": "lvm", "images_volume_group": hypervisor.group},
    }


@pytest.fixture(scope="module")
def lvm_driver(cloud: Cloud, fen: NestedHypervisor) -> Iterator[Deployment]:
    made = Deployment(cloud, MILLPOND, cloud.new_compute(fen, NestedCompute))
    began = time.monotonic()
    made.start(MAPPING, extra=storage(fen))
    print(f"nova-compute started in {time.monotonic() - began:.0f} s")
    yield made
    made.compute.kill()


@pytest.fixture(scope="module")
def other(cloud: Cloud, mire: NestedHypervisor, lvm_driver: Deployment) -> Iterator[Deployment]:
    """A second one, to which Nova schedules nothing by itself."""
    made = Deployment(cloud, MILLPOND, cloud.new_compute(mire, NestedCompute))
    made.start(MAPPING, extra=storage(mire))
    cloud.offer_host(made.compute, offered=False)
    yield made
    made.compute.kill()


@pytest.fixture
def user(cloud: Cloud) -> Iterator[CloudUser]:
    found = CloudUser(cloud.keystone.user(), PATIENCE)
    yield found
    found.clear()


def create(user: CloudUser, offer: Offer, image: str = "") -> Server:
    """With disks of all kinds."""
    wanted = image or offer.images["raw"]
    server = user.create(wanted, offer.flavor_with_all_disks, config_drive=True)
    user.await_console(server, "READY")
    return server


def sizes(hypervisor: NestedHypervisor, server: Server) -> dict[str, int]:
    """Of its logical volumes, by their roles."""
    prefix = f"{server.id}_"
    return {
        name.removeprefix(prefix): size
        for name, size in hypervisor.volumes().items()
        if name.startswith(prefix)
    }


def scribble(hypervisor: NestedHypervisor, server: Server, where: int = 512 * MiB) -> str:
    """As its guest would, were it on."""
    text = f"written into {server.id}"
    device = hypervisor.device(f"{server.id}_disk")
    words = ("dd", f"of={device}", "bs=1M", f"seek={where // MiB}", "conv=notrunc", "status=none")
    hypervisor.run(*words, input=text)
    return text


def holds(hypervisor: NestedHypervisor, volume: str, text: str) -> bool:
    words = ("grep", "--quiet", "--text", "--fixed-strings", text, hypervisor.device(volume))
    return hypervisor.attempt(*words).returncode == 0


def test_a_server_lives_through_it_all(
    user: CloudUser, offer: Offer, lvm_driver: Deployment, fen: NestedHypervisor
) -> None:
    server = create(user, offer)
    assert sizes(fen, server) == DISKS
    root, _ephemeral, _swap, config = fen.disks(server.id)
    assert (root.get("type"), root.find("source").get("pool")) == ("volume", POOL)
    assert (root.find("driver").get("type"), config.get("device")) == ("raw", "cdrom")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    user.stop(server)
    user.start(server)
    user.await_console(server, "BOOTS 0003")
    user.rescue(server, offer.images["raw"])
    user.await_console(server, "BOOTS 0001")
    assert set(sizes(fen, server)) == {*DISKS, "disk.rescue"}
    user.unrescue(server)
    user.await_console(server, "BOOTS 0004")
    assert sizes(fen, server) == DISKS
    assert lvm_driver.problems() == []
    user.rebuild(server, offer.images["raw"])
    user.wait(server, "ACTIVE")
    user.await_console(server, "BOOTS 0001")
    assert sizes(fen, server) == DISKS
    user.delete(server)
    assert fen.volumes() == {}


def test_images_are_made_of_it_and_it_is_shelved(
    user: CloudUser, offer: Offer, lvm_driver: Deployment, fen: NestedHypervisor
) -> None:
    server = create(user, offer)
    live = user.snapshot(server)
    copy = user.create(live.id, offer.flavor)
    user.await_console(copy, "BOOTS 0002")
    assert set(sizes(fen, copy)) == set() if live.disk_format == "qcow2" else {"disk"}
    user.stop(server)
    cold = user.snapshot(server)
    user.await_console(user.create(cold.id, offer.flavor), "BOOTS 0002")
    user.start(server)
    user.await_console(server, "BOOTS 0002")
    user.shelve(server)
    assert sizes(fen, server) == {}
    user.unshelve(server)
    user.await_console(server, "BOOTS 0003")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0004")
    assert lvm_driver.problems() == []
    user.clear()
    assert fen.volumes() == {}


def test_who_gets_its_extents_finds_nothing(
    user: CloudUser, offer: Offer, lvm_driver: Deployment, fen: NestedHypervisor
) -> None:
    """volume_clear is zero."""
    server = create(user, offer)
    user.stop(server)
    text = scribble(fen, server)
    assert holds(fen, f"{server.id}_disk", text)
    user.delete(server)
    fen.run("lvcreate", "--yes", "--name", "next", "--extents", "100%FREE", fen.group)
    assert not holds(fen, "next", text)
    fen.run("lvremove", "--yes", f"{fen.group}/next")


@pytest.fixture(scope="module")
def larger(cloud: Cloud) -> str:
    return cloud.offer_flavor(disk=2, ephemeral=2, swap=128)


def test_it_is_resized_and_each_revert_gives_what_was(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    larger: str,
    lvm_driver: Deployment,
    fen: NestedHypervisor,
) -> None:
    server = create(user, offer)
    user.stop(server)
    before = fen.digest(f"{server.id}_disk")
    user.resize(server, larger)
    assert sizes(fen, server)["disk"] == 2 * GiB
    scribble(fen, server)
    user.revert(server, "SHUTOFF")
    (root,) = (each for each in sizes(fen, server) if each in ("disk", "disk.saved"))
    assert fen.digest(f"{server.id}_{root}") == before
    user.start(server)
    user.await_console(server, "BOOTS 0002")
    user.resize(server, larger)
    user.await_console(server, "BOOTS 0003")
    user.confirm(server)
    found = sizes(fen, server)
    assert (found.pop(root), len(found)) == (2 * GiB, 2)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0004")
    assert cloud.hosts_with_allocations(server.id) == ["fen"]
    assert lvm_driver.problems() == []


def test_it_moves_to_another_volume_group_and_back(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    lvm_driver: Deployment,
    other: Deployment,
    fen: NestedHypervisor,
    mire: NestedHypervisor,
) -> None:
    server = create(user, offer)
    user.stop(server)
    text = scribble(fen, server)
    before = fen.digest(f"{server.id}_disk")
    cloud.offer_host(other.compute)
    cloud.admin.compute.migrate_server(server, host="mire")
    user.wait(server, "VERIFY_RESIZE")
    assert mire.digest(f"{server.id}_disk") == before
    scribble(mire, server, where=0)
    user.revert(server, "SHUTOFF")
    assert fen.digest(f"{server.id}_disk") == before
    assert mire.volumes() == {}
    user.start(server)
    user.await_console(server, "BOOTS 0002")
    cloud.admin.compute.migrate_server(server, host="mire")
    user.wait(server, "VERIFY_RESIZE")
    user.await_console(server, "BOOTS 0003")
    user.confirm(server)
    assert (sizes(mire, server), fen.volumes()) == (DISKS, {})
    assert holds(mire, f"{server.id}_disk", text)
    assert cloud.hosts_with_allocations(server.id) == ["mire"]
    for each in (lvm_driver, other):
        assert each.problems() == []
    cloud.admin.compute.live_migrate_server(server, host="fen", block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == "fen")
    user.wait(server, "ACTIVE")
    assert (sizes(fen, server), mire.volumes()) == (DISKS, {})
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0004")
    cloud.offer_host(other.compute, offered=False)
    user.delete(server)
    assert fen.volumes() == {}


def test_volumes_that_novas_driver_made_are_adopted_in_place_and_given_back(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    lvm_driver: Deployment,
    fen: NestedHypervisor,
) -> None:
    nova = Deployment(cloud, NOVA, lvm_driver.compute, after=MILLPOND)
    nova.start(extra=storage(fen))
    server, untouched = create(user, offer), create(user, offer)
    made = sizes(fen, server)
    assert made["disk"] == GiB
    lvm_driver.start(MAPPING, extra=storage(fen))
    status, told = lvm_driver.transition("status")
    assert (status, {each["server"] for each in told}) == (0, {server.id, untouched.id})
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert fen.disks(server.id)[0].find("source").get("pool") == POOL
    assert sizes(fen, server) == made
    assert [each["server"] for each in lvm_driver.transition("status")[1]] == [untouched.id]
    user.stop(server)
    before = fen.digest(f"{server.id}_disk")
    status, (told_of,) = lvm_driver.transition("revert", server.id)
    assert (status, told_of["error"]) == (0, "")
    assert (sizes(fen, server), fen.digest(f"{server.id}_disk")) == (made, before)
    nova.start(extra=storage(fen))
    user.start(server)
    user.await_console(server, "BOOTS 0003")
    lvm_driver.start(MAPPING, extra=storage(fen))
    user.delete(server, untouched)
    assert fen.volumes() == {}
