"""What our driver does not do yet is refused, in words, and nothing happens to the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server
from openstack.exceptions import BadRequestException

from tests.nova.conftest import Offer
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

REFUSED = "Millpond does not move the disks of servers between hosts yet"


@pytest.fixture(scope="module")
def other_host(
    cloud: Cloud, millpond_driver: Deployment, session_directory: Path
) -> Iterator[Deployment]:
    """A second one, to which Nova schedules nothing by itself."""
    with PrivateLibvirtd(session_directory / "nova-other", name="dam") as libvirtd:
        deployment = Deployment(cloud, MILLPOND, cloud.compute_beside(libvirtd))
        deployment.compute.directory.mkdir()
        deployment.start()
        cloud.offer_host(deployment.compute, offered=False)
        yield deployment
        deployment.compute.stop()


@pytest.fixture
def server(user: CloudUser, offer: Offer, millpond_driver: Deployment) -> Server:
    made = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(made, "READY")
    return made


@pytest.fixture
def target(cloud: Cloud, other_host: Deployment, server: Server) -> Iterator[str]:
    """The name of the other host, once the server is on the first."""
    cloud.offer_host(other_host.compute)
    yield other_host.compute.host
    cloud.offer_host(other_host.compute, offered=False)


def test_it_is_not_resized(cloud: Cloud, user: CloudUser, offer: Offer, server: Server) -> None:
    user.connection.compute.resize_server(server, offer.flavor_with_all_disks)
    user.await_truth(lambda: REFUSED in cloud.fault(server.id, "resize"))
    _is_as_it_was(user, server)


def test_it_is_not_migrated(cloud: Cloud, user: CloudUser, server: Server, target: str) -> None:
    cloud.admin.compute.migrate_server(server, host=target)
    user.await_truth(lambda: REFUSED in cloud.fault(server.id, "migrate"))
    _is_as_it_was(user, server)


def test_it_is_not_migrated_live(
    cloud: Cloud, user: CloudUser, server: Server, target: str
) -> None:
    with pytest.raises(BadRequestException, match=REFUSED):
        cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
    _is_as_it_was(user, server)


def test_it_is_not_evacuated(cloud: Cloud, user: CloudUser, server: Server, target: str) -> None:
    """Nova puts such a server into ERROR; it runs on where it is."""
    with cloud.given_up(cloud.compute):
        cloud.admin.compute.evacuate_server(server, host=target)
        refused = user.wait(server, "ERROR")
    assert "evacuate is not supported" in refused.fault["message"]
    user.await_console(server, "TICK 0003")
    user.connection.compute.reboot_server(server, "HARD")
    user.await_truth(lambda: user.look(server).status == "ACTIVE")
    user.await_console(server, "BOOTS 0002")


def _is_as_it_was(user: CloudUser, server: Server) -> None:
    user.wait(server, "ACTIVE")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
