"""What a server of a cloud can go through, with our driver and with the one that Nova comes with:
the same list for both, so that their columns can be compared."""

import pytest

from tests.nova.conftest import Offer, from_image
from tests.nova.domains import disks
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.parametrize("format", ["qcow2", "raw"]),
    pytest.mark.full,
]


@pytest.fixture
def image(offer: Offer, either: Deployment, format: str) -> str:
    return offer.images[format]


def test_it_is_created_and_deleted(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create(image, offer.flavor)
    assert "BOOTS 0001" in user.await_console(server, "READY")
    user.delete(server)


@pytest.mark.parametrize("how", ["HARD", "SOFT"])
def test_it_is_rebooted(user: CloudUser, offer: Offer, image: str, how: str) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "READY")
    user.reboot(server, how)
    user.await_console(server, "BOOTS 0002")


def test_it_is_stopped_and_started(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "READY")
    user.stop(server)
    user.start(server)
    user.await_console(server, "BOOTS 0002")


def test_an_image_is_made_of_it_while_it_is_off(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "READY")
    user.stop(server)
    made = user.snapshot(server)
    user.await_console(user.create(made.id, offer.flavor), "BOOTS 0002")
    user.start(server)
    user.await_console(server, "BOOTS 0002")


def test_an_image_is_made_of_it_while_it_runs(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "TICK 0002")
    made = user.snapshot(server)
    user.await_console(user.create(made.id, offer.flavor), "BOOTS 0002")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")


def test_it_is_rescued_and_comes_back(
    user: CloudUser, offer: Offer, image: str, hypervisor: PrivateLibvirtd
) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "READY")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    user.rescue(server, image)
    user.await_console(server, "BOOTS 0001")
    assert len(disks(hypervisor, server)) == 2
    user.unrescue(server)
    user.await_console(server, "BOOTS 0003")
    assert len(disks(hypervisor, server)) == 1


def test_it_has_a_config_drive(
    user: CloudUser, offer: Offer, image: str, hypervisor: PrivateLibvirtd
) -> None:
    server = user.create(image, offer.flavor, config_drive=True)
    user.await_console(server, "READY")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert [each.get("device") for each in disks(hypervisor, server)] == ["disk", "cdrom"]


def test_it_has_an_ephemeral_and_a_swap_disk(
    user: CloudUser, offer: Offer, image: str, hypervisor: PrivateLibvirtd
) -> None:
    server = user.create(image, offer.flavor_with_all_disks)
    user.await_console(server, "READY")
    assert len(disks(hypervisor, server)) == 3


def test_a_volume_comes_and_goes(
    user: CloudUser, offer: Offer, image: str, hypervisor: PrivateLibvirtd
) -> None:
    server = user.create(image, offer.flavor)
    volume = user.make_volume()
    user.attach(server, volume)
    assert len(disks(hypervisor, server)) == 2
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert len(disks(hypervisor, server)) == 2
    user.stop(server)
    user.detach(server, volume)
    user.start(server)
    user.await_console(server, "BOOTS 0003")
    assert len(disks(hypervisor, server)) == 1


def test_it_boots_from_a_volume(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create("", offer.flavor, block_device_mapping=[from_image(image)])
    user.await_console(server, "READY")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")


def test_it_is_built_anew(user: CloudUser, offer: Offer, image: str) -> None:
    server = user.create(image, offer.flavor)
    user.await_console(server, "READY")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    user.rebuild(server, offer.images["raw" if image == offer.images["qcow2"] else "qcow2"])
    user.wait(server, "ACTIVE")
    user.await_console(server, "BOOTS 0001")
