"""What our driver does not do yet is refused, in words, and nothing happens to the server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server
from openstack.exceptions import BadRequestException

from tests.nova.conftest import Offer, from_image
from tests.nova.domains import volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

REFUSED = "Millpond does not move the disks of servers between hosts yet"


@pytest.fixture(scope="module")
def other_host(
    cloud: Cloud, millpond_driver: Deployment, session_directory: Path
) -> Iterator[Deployment]:
    """A second one, to which Nova schedules nothing by itself."""
    with PrivateLibvirtd(session_directory / "nova-other", name="dam") as libvirtd:
        cloud.offer_volumes(libvirtd)
        deployment = Deployment(cloud, MILLPOND, cloud.new_compute(libvirtd))
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
    with cloud.given_up(cloud.compute):
        cloud.admin.compute.evacuate_server(server, host=target)
        user.await_truth(lambda: REFUSED in cloud.fault(server.id, "evacuate"))
    user.await_console(server, "TICK 0003")
    _is_as_it_was(user, server)


def test_one_that_boots_from_a_volume_is_evacuated(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    other_host: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = user.create("", offer.flavor, block_device_mapping=[from_image(offer.images["raw"])])
    user.await_console(server, "READY")
    cloud.offer_host(other_host.compute)
    try:
        with hypervisor.connect() as connection:  # two guests do not open one volume
            connection.lookupByUUIDString(server.id).destroy()
        with _evacuated(cloud, user, server, other_host.compute.host, millpond_driver):
            # Nova boots it once by itself, and may shut it off before the guest has counted that.
            assert "BOOTS 0001" not in user.await_console(server, "READY")
        assert not _has_domain(hypervisor, server)
        user.delete(server)
    finally:
        cloud.offer_host(other_host.compute, offered=False)


def test_an_evacuated_server_runs_once(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    other_host: Deployment,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    """The other host has Nova's own driver, and makes the server again from its image."""
    stock = Deployment(cloud, NOVA, other_host.compute)
    stock.start()
    try:
        with _evacuated(cloud, user, server, target, millpond_driver):
            user.await_console(server, "READY")
            assert _has_domain(hypervisor, server)
        assert not _has_domain(hypervisor, server)
        assert volumes(hypervisor) == set()
        assert cloud.hosts_with_allocations(server.id) == [target]
        user.reboot(server, "HARD")
        user.await_console(server, "READY")
        user.delete(server)
    finally:
        other_host.start()


def test_a_server_from_before_is_not_migrated_live_to_a_host_without_files(
    cloud: Cloud, user: CloudUser, offer: Offer, millpond_driver: Deployment, target: str
) -> None:
    user.clear()  # Nova's own driver would leave the volumes of a server of ours
    nova = Deployment(cloud, NOVA)
    nova.start()
    try:
        old = user.create(offer.images["qcow2"], offer.flavor)
        user.await_console(old, "READY")
        with pytest.raises(BadRequestException, match="No valid host was found"):
            cloud.admin.compute.live_migrate_server(old, host=target, block_migration="auto")
        _is_as_it_was(user, old)
        user.clear()
    finally:
        millpond_driver.start()


@contextmanager
def _evacuated(
    cloud: Cloud, user: CloudUser, server: Server, target: str, deployment: Deployment
) -> Iterator[None]:
    """In the block its own host is dead. After it that one is back, and taken for alive, which
    Nova refuses as long as it finds leftovers."""
    deployment.compute.kill()
    cloud.force_down(deployment.compute)
    try:
        cloud.admin.compute.evacuate_server(server, host=target)

        def has_arrived() -> bool:
            fault = cloud.fault(server.id, "evacuate").strip("; ")
            assert not fault, fault
            return cloud.host_of(server.id) == target

        user.await_truth(has_arrived)
        user.wait(server, "SHUTOFF")  # as Nova leaves it there
        user.start(server)
        yield
    finally:
        deployment.run()
        cloud.force_down(deployment.compute, forced=False)


def _has_domain(hypervisor: PrivateLibvirtd, server: Server) -> bool:
    with hypervisor.connect() as connection:
        return server.id in [each.UUIDString() for each in connection.listAllDomains()]


def _is_as_it_was(user: CloudUser, server: Server) -> None:
    user.wait(server, "ACTIVE")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
