"""What nova-compute stands on goes away and comes back; nobody starts nova-compute again, but with
its host."""

from collections.abc import Iterator

import pytest

from tests.nova.conftest import Offer, create
from tests.nova.domains import volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


@pytest.fixture
def resuming(millpond_driver: Deployment) -> Iterator[Deployment]:
    millpond_driver.start(extra={"DEFAULT": {"resume_guests_state_on_host_boot": True}})
    yield millpond_driver
    millpond_driver.start()


def test_the_host_is_booted(
    user: CloudUser, offer: Offer, resuming: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    """After a loss of power: what ran runs again, what was off stays off."""
    ran = [create(user, offer, format) for format in ("qcow2", "raw")]
    off = create(user, offer, "qcow2")
    user.stop(off)
    resuming.compute.kill()
    hypervisor.reboot()
    resuming.run()
    for each in ran:
        user.await_console(each, "BOOTS 0002")
        assert user.wait(each, "ACTIVE").vm_state == "active"
    assert user.look(off).status == "SHUTOFF"
    user.start(off)
    user.await_console(off, "BOOTS 0002")
    assert resuming.problems() == []
    user.clear()
    assert volumes(hypervisor) == set()


def _serves(user: CloudUser, offer: Offer, deployment: Deployment, pid: int) -> None:
    """All that touches disks is done by the process that was there before."""
    made = create(user, offer, "qcow2")
    image = user.snapshot(made)
    user.await_console(user.create(image.id, offer.flavor), "BOOTS 0002")
    user.stop(made)
    user.start(made)
    user.await_console(made, "BOOTS 0002")
    user.clear()
    assert deployment.compute.pid == pid
    assert deployment.problems() == []
    assert volumes(deployment.compute.hypervisor) == set()


def test_libvirtd_is_restarted(
    user: CloudUser, offer: Offer, millpond_driver: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    pid = millpond_driver.compute.pid
    ran = create(user, offer, "raw")
    hypervisor.restart()
    user.await_truth(lambda: user.look(ran).status == "ACTIVE")
    user.reboot(ran, "HARD")
    user.await_console(ran, "BOOTS 0002")
    _serves(user, offer, millpond_driver, pid)


def test_rabbitmq_is_restarted(
    cloud: Cloud, user: CloudUser, offer: Offer, millpond_driver: Deployment
) -> None:
    pid = millpond_driver.compute.pid
    ran = create(user, offer, "raw")
    cloud.restart_messaging()
    user.reboot(ran, "HARD")
    user.await_console(ran, "BOOTS 0002")
    _serves(user, offer, millpond_driver, pid)
