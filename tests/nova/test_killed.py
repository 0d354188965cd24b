"""nova-compute dies by SIGKILL in the middle of something, and the next one goes on."""

from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from tests.nova.conftest import Offer
from tests.nova.domains import disks, volumes
from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]


@pytest.fixture
def new_image(cloud: Cloud, micro_guest: MicroGuest) -> str:
    """One that the host has no template of."""
    return cloud.offer_image(micro_guest.path, "raw")


def test_while_it_fetches_the_image(
    user: CloudUser,
    offer: Offer,
    new_image: str,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    millpond_driver.run_until("prepare", "receive", "end")
    server = _created_until_death(user, millpond_driver, new_image, offer.flavor)
    begun = millpond_driver.instances / "_base.millpond/incoming"
    assert list(begun.iterdir())
    millpond_driver.run()
    fault = user.wait(server, "ERROR").fault["message"]
    assert "'spawning'" in fault
    assert "disk 'disk' was unfinished and is removed" in fault
    assert list(begun.iterdir()) == []
    assert volumes(hypervisor) == set()
    assert millpond_driver.problems() == []
    user.delete(server)


def test_while_it_makes_a_disk(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    millpond_driver.run_until("disk", "make", "end")
    image = offer.images["raw"]
    server = _created_until_death(user, millpond_driver, image, offer.flavor_with_all_disks)
    assert volumes(hypervisor) == {f"{server.id}_disk"}
    millpond_driver.run()
    fault = user.wait(server, "ERROR").fault["message"]
    assert "'spawning'" in fault
    assert "disk 'disk' was unfinished and is removed" in fault
    assert volumes(hypervisor) == set()
    user.delete(server)


def test_while_it_builds_a_server_anew(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(server, "READY")
    millpond_driver.run_until("disk", "make", "end")
    user.rebuild(server, offer.images["raw"])
    millpond_driver.compute.await_end()
    assert volumes(hypervisor) == {f"{server.id}_disk"}
    millpond_driver.run()
    fault = user.wait(server, "ERROR").fault["message"]
    assert "'rebuild_spawning'" in fault
    assert "disk 'disk' was unfinished and is removed; rebuild or delete the server" in fault
    assert volumes(hypervisor) == set()
    user.rebuild(server, offer.images["raw"])
    user.wait(server, "ACTIVE")
    user.await_console(server, "BOOTS 0001")


def test_when_the_disks_are_made_and_the_domain_is_not(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    millpond_driver.run_until("driver", "_create_guest_with_network", "begin")
    server = _created_until_death(user, millpond_driver, offer.images["qcow2"], offer.flavor)
    millpond_driver.run()
    fault = user.wait(server, "ERROR").fault["message"]
    assert "'spawning'" in fault
    assert "disk 'disk' is complete" in fault
    assert _warnings(millpond_driver, "domains")
    user.delete(server)
    assert volumes(hypervisor) == set()


def test_while_it_deletes_a_server(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = user.create(offer.images["qcow2"], offer.flavor_with_all_disks)
    before = volumes(hypervisor)
    millpond_driver.run_until("disk", "delete", "end")
    user.connection.compute.delete_server(server)
    millpond_driver.compute.await_end()
    assert len(volumes(hypervisor)) == len(before) - 1
    millpond_driver.run()
    user.await_deletion(server)
    assert volumes(hypervisor) == set()


def test_while_it_copies_a_running_server(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(server, "TICK 0002")
    millpond_driver.run_until("disk", "mirror", "end")
    user.connection.compute.create_server_image(server, "perch")
    millpond_driver.compute.await_end()
    assert disks(hypervisor, server)[0].find("mirror") is not None
    millpond_driver.run()
    user.wait(server, "ACTIVE")
    assert disks(hypervisor, server)[0].find("mirror") is None
    assert list(millpond_driver.instances.glob("snapshots/*/*")) == []
    made = user.snapshot(server)
    user.await_console(user.create(made.id, offer.flavor), "BOOTS 0002")


def test_while_it_copies_a_server_whose_state_an_administrator_resets(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    """Nothing tells of the copy then, and QEMU goes on to write it."""
    server = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(server, "TICK 0002")
    millpond_driver.run_until("disk", "mirror", "end")
    user.connection.compute.create_server_image(server, "perch")
    millpond_driver.compute.await_end()
    cloud.admin.compute.reset_server_state(server, "active")
    millpond_driver.run()
    copy = disks(hypervisor, server)[0].find("mirror/source").get("file")
    assert Path(copy).exists()
    assert millpond_driver.problems("--mend") == []
    assert disks(hypervisor, server)[0].find("mirror") is None
    millpond_driver.restart()
    assert not Path(copy).exists()
    user.await_console(server, "TICK 0003")


def test_while_it_rescues_a_server(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = _running(user, offer)
    own = volumes(hypervisor)
    millpond_driver.run_until("disk", "make", "end")
    user.begin_to_rescue(server, offer.images["raw"])
    millpond_driver.compute.await_end()
    assert len(volumes(hypervisor)) == len(own) + 1
    _goes_on(user, millpond_driver, server)
    assert volumes(hypervisor) == own
    user.rescue(server, offer.images["raw"])
    user.await_console(server, "BOOTS 0001")
    user.unrescue(server)
    user.await_console(server, "BOOTS 0003")


def test_while_it_ends_a_rescue(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = _running(user, offer)
    own = volumes(hypervisor)
    user.rescue(server, offer.images["raw"])
    assert len(volumes(hypervisor)) > len(own)
    millpond_driver.run_until("driver", "_delete_disks", "begin")
    user.connection.compute.unrescue_server(server)
    millpond_driver.compute.await_end()
    _goes_on(user, millpond_driver, server, 3)  # Nova had started it before
    assert volumes(hypervisor) == own


def test_while_it_copies_a_server_that_is_shelved(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = _running(user, offer)
    own = volumes(hypervisor)
    millpond_driver.run_until("driver", "_copy", "end")
    user.connection.compute.shelve_server(server)
    millpond_driver.compute.await_end()
    _goes_on(user, millpond_driver, server)
    assert volumes(hypervisor) == own
    assert list(millpond_driver.instances.glob("snapshots/*/*")) == []
    user.shelve(server)
    user.unshelve(server)
    user.await_console(server, "BOOTS 0003")


@pytest.mark.parametrize(("begin", "step"), [("shelve", "delete"), ("unshelve", "make")])
def test_while_a_shelved_server_leaves_its_host_or_comes_back(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    begin: str,
    step: str,
) -> None:
    """Its image is all that there is of it then."""
    server = _running(user, offer)
    if begin == "unshelve":
        user.shelve(server)
    millpond_driver.run_until("disk", step, "end")
    compute = user.connection.compute
    (compute.shelve_server if begin == "shelve" else compute.unshelve_server)(server)
    millpond_driver.compute.await_end()
    assert volumes(hypervisor)
    millpond_driver.run()
    user.wait(server, "SHELVED_OFFLOADED")
    user.await_truth(lambda: not cloud.consumers()["weir"])
    assert volumes(hypervisor) == set()
    assert millpond_driver.problems() == []
    user.unshelve(server)
    user.await_console(server, "BOOTS 0002")


@pytest.mark.parametrize("verb", ["start", "reboot"])
def test_while_it_starts_a_server(
    user: CloudUser, offer: Offer, millpond_driver: Deployment, verb: str
) -> None:
    server = _running(user, offer)
    if verb == "start":
        user.stop(server)
    millpond_driver.run_until("driver", "_create_guest_with_network", "begin")
    if verb == "start":
        user.connection.compute.start_server(server)
    else:
        user.connection.compute.reboot_server(server, "HARD")
    millpond_driver.compute.await_end()
    _goes_on(user, millpond_driver, server)


def _running(user: CloudUser, offer: Offer) -> Server:
    server = user.create(offer.images["qcow2"], offer.flavor_with_all_disks)
    user.await_console(server, "READY")
    return server


def _goes_on(user: CloudUser, deployment: Deployment, server: Server, boots: int = 2) -> None:
    """Nobody asks for anything: with its own disks, its guest starts again."""
    deployment.run()
    user.wait(server, "ACTIVE")
    user.await_console(server, f"BOOTS {boots:04}")
    assert deployment.problems() == []


def _created_until_death(
    user: CloudUser, deployment: Deployment, image: str, flavor: str
) -> Server:
    server = user.begin_to_create(image, flavor)
    deployment.compute.await_end()
    return server


def _warnings(deployment: Deployment, check: str) -> list[str]:
    status, found = deployment.doctor()
    assert status == 0
    return [each["what"] for each in found if (each["check"], each["level"]) == (check, "warning")]
