"""A server that is deleted in the middle of something leaves nothing behind."""

import time
from collections.abc import Callable

import pytest
from openstack.compute.v2.server import Server
from openstack.exceptions import HttpException

from tests.nova.conftest import Offer
from tests.nova.domains import volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(1800)

FEW = 2
MANY = 20

Begin = Callable[[Server], Server]


@pytest.fixture
def moments(request: pytest.FixtureRequest) -> int:
    """How many of them are tried."""
    count: int = request.param
    return count


each_way = pytest.mark.parametrize(
    "moments", [FEW, pytest.param(MANY, marks=pytest.mark.full)], indirect=True
)


@each_way
def test_while_it_is_created(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    moments: int,
) -> None:
    image, flavor = offer.images["raw"], offer.flavor_with_all_disks
    begun = time.monotonic()
    first = user.create(image, flavor, config_drive=True)
    seconds = time.monotonic() - begun
    servers = [first]
    for moment in range(moments):
        server = user.begin_to_create(image, flavor, config_drive=True)
        servers.append(server)
        _delete_after(user, server, seconds * moment / moments)
    user.delete(first)
    _nothing_is_left(user, servers, millpond_driver, hypervisor)


@each_way
def test_while_it_is_unshelved(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    moments: int,
) -> None:
    def shelved() -> Server:
        server = user.create(offer.images["qcow2"], offer.flavor_with_all_disks)
        user.shelve(server)
        return server

    first = shelved()
    begun = time.monotonic()
    user.unshelve(first)
    seconds = time.monotonic() - begun
    servers = [first]
    for moment in range(moments):
        server = shelved()
        servers.append(server)
        user.begin_to_unshelve(server)
        _delete_after(user, server, seconds * moment / moments)
    user.delete(first)
    _nothing_is_left(user, servers, millpond_driver, hypervisor)


@each_way
def test_while_it_is_rescued(
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    moments: int,
) -> None:
    image, flavor, rescue = offer.images["qcow2"], offer.flavor_with_all_disks, offer.images["raw"]
    first = user.create(image, flavor, config_drive=True)
    begun = time.monotonic()
    user.rescue(first, rescue)
    seconds = time.monotonic() - begun
    servers = [first]
    for moment in range(moments):
        server = user.create(image, flavor, config_drive=True)
        servers.append(server)
        user.begin_to_rescue(server, rescue)
        _delete_after(user, server, seconds * moment / moments)
    user.delete(first)
    _nothing_is_left(user, servers, millpond_driver, hypervisor)


def _delete_after(user: CloudUser, server: Server, seconds: float) -> None:
    time.sleep(seconds)

    def is_begun() -> bool:
        """A server that gets its host in that very moment is an error of Nova's API (500)."""
        try:
            user.connection.compute.delete_server(server)
        except HttpException as error:
            if "ObjectActionError" not in str(error):
                raise
            return False
        return True

    wait_for(is_begun, 30)


def _nothing_is_left(
    user: CloudUser, servers: list[Server], deployment: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    """What the delete did not wait for may still be under way when the server is gone."""
    user.await_deletion(*servers)
    ids = [each.id for each in servers]

    def left() -> list[str]:
        with hypervisor.connect() as connection:
            domains = [each.UUIDString() for each in connection.listAllDomains()]
        directories = [each.name for each in deployment.instances.iterdir()]
        found = (*domains, *directories, *volumes(hypervisor))
        return [each for each in found if each.startswith(tuple(ids))]

    user.await_truth(lambda: not left())
