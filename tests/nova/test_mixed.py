"""Nova's own driver on one host and ours on the other."""

from collections.abc import Iterator

import pytest
from openstack.exceptions import BadRequestException

from tests.nova.conftest import Offer, create
from tests.nova.domains import ALL, forget_pools, has_domain, roles, volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]


@pytest.fixture
def stock(cloud: Cloud, user: CloudUser, millpond_driver: Deployment) -> Iterator[Deployment]:
    """At weir."""
    made = Deployment(cloud, NOVA)
    made.start()
    yield made
    user.clear()
    millpond_driver.start()


@pytest.fixture
def ours(
    cloud: Cloud, user: CloudUser, stock: Deployment, other_host: Deployment
) -> Iterator[Deployment]:
    """At dam, in the same directory; it takes what Nova's own driver has made."""
    made = Deployment(cloud, MILLPOND, other_host.compute, place=NOVA)
    other_host.compute.stop()
    forget_pools(made.compute.hypervisor)
    made.start(extra={"libvirt": {"images_type": "qcow2"}})
    yield made
    user.clear()
    cloud.offer_host(made.compute, offered=False)
    made.compute.stop()
    forget_pools(made.compute.hypervisor)
    other_host.start()


@pytest.mark.parametrize("format", ["qcow2", "raw"])
def test_a_server_comes_live_and_does_not_go_back(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    stock: Deployment,
    ours: Deployment,
    there: PrivateLibvirtd,
    hypervisor: PrivateLibvirtd,
    format: str,
) -> None:
    server = create(user, offer, format)
    cloud.offer_host(ours.compute)
    host = ours.compute.host
    cloud.admin.compute.live_migrate_server(server, host=host, block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == host)
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "TICK")
    assert cloud.hosts_with_allocations(server.id) == [host]
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert roles(there, server) == ALL
    assert ours.transition("status") == (0, [])
    with pytest.raises(BadRequestException, match="No valid host"):  # Nova asks each in turn
        cloud.admin.compute.live_migrate_server(server, host="weir", block_migration="auto")
    user.wait(server, "ACTIVE")
    cloud.admin.compute.migrate_server(server, host="weir")
    reason = "does not run Millpond's driver"
    user.await_truth(lambda: reason in cloud.fault(server.id, "migrate"))
    user.wait(server, "ACTIVE")
    assert "BOOTS 0003" not in user.await_console(server, "TICK")
    assert cloud.hosts_with_allocations(server.id) == [host]
    assert not has_domain(hypervisor, server)
    assert ours.problems() == []
    user.delete(server)
    assert volumes(there) == set()
