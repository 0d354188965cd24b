"""The request filter on, and two hosts that take different images: servers land only where their
image is taken, or are refused and stay as they were."""

from collections.abc import Iterator

import pytest
from openstack.compute.v2.server import Server
from openstack.exceptions import BadRequestException

from tests.nova.conftest import Offer, create, evacuated
from tests.nova.domains import roles
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


@pytest.fixture(scope="module")
def filtering(cloud: Cloud, millpond_driver: Deployment, other_host: Deployment) -> Iterator[None]:
    """weir takes all but raw images, dam all but qcow2 ones, each by its own mapping."""
    millpond_driver.start(
        "qcow2:qcow2, vmdk:raw", extra={"compute": {"image_type_exclude_list": "raw"}}
    )
    other_host.start("raw:qcow2", extra={"compute": {"image_type_exclude_list": "qcow2,vmdk"}})
    cloud.reschedule({"scheduler": {"query_placement_for_image_type_support": True}})
    cloud.offer_host(other_host.compute)
    yield
    cloud.offer_host(other_host.compute, offered=False)
    cloud.reschedule({})
    millpond_driver.start()
    other_host.start()


@pytest.fixture
def server(user: CloudUser, offer: Offer, filtering: None) -> Server:
    """Which can be at weir only."""
    return create(user, offer, "qcow2", offer.flavor)


def is_at(cloud: Cloud, user: CloudUser, server: Server, host: str, boots: int) -> None:
    """Placement has claimed it there and nowhere else, and its guest has its disk."""
    user.wait(server, "ACTIVE")
    assert cloud.host_of(server.id) == host
    assert cloud.hosts_with_allocations(server.id) == [host]
    assert f"BOOTS {boots:04}" in user.await_console(server, "READY")


@pytest.mark.parametrize(("format", "host"), [("qcow2", "weir"), ("vmdk", "weir"), ("raw", "dam")])
def test_it_is_created_where_its_image_is_taken(
    cloud: Cloud, user: CloudUser, offer: Offer, filtering: None, format: str, host: str
) -> None:
    for _ in range(2):
        is_at(cloud, user, create(user, offer, format, offer.flavor), host, 1)


def test_a_rebuild_with_an_image_of_another_host_changes_nothing(
    cloud: Cloud, user: CloudUser, offer: Offer, server: Server
) -> None:
    user.rebuild(server, offer.images["raw"])
    user.await_truth(lambda: "an image of the format raw" in cloud.fault(server.id, "rebuild"))
    user.await_truth(lambda: cloud.hosts_with_allocations(server.id) == ["weir"])
    is_at(cloud, user, server, "weir", 1)
    assert "COMPUTE_IMAGE_TYPE_RAW" not in cloud.traits()
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")


def test_a_resize_stays_where_the_image_is_taken(
    cloud: Cloud, user: CloudUser, server: Server
) -> None:
    user.resize(server, cloud.offer_flavor(disk=2))
    assert cloud.host_of(server.id) == "weir"
    user.confirm(server)
    is_at(cloud, user, server, "weir", 2)


def test_no_move_goes_where_the_image_is_not_taken(
    cloud: Cloud, user: CloudUser, server: Server, other_host: Deployment
) -> None:
    """The scheduler finds no host, and for a forced one neither."""
    admin, there = cloud.admin.compute, other_host.compute
    admin.migrate_server(server)  # Nova tries its own host, too
    user.await_truth(lambda: cloud.status_of_move(server.id) == "error")
    is_at(cloud, user, server, "weir", 1)
    admin.migrate_server(server, host=there.host)
    user.await_truth(lambda: "No valid host" in cloud.fault(server.id, "migrate"))
    is_at(cloud, user, server, "weir", 1)
    for host in (None, there.host):
        with pytest.raises(BadRequestException, match="No valid host"):
            admin.live_migrate_server(server, host=host, block_migration="auto")
        is_at(cloud, user, server, "weir", 1)
    assert roles(there.hypervisor, server) == set()


def test_it_is_not_evacuated_to_where_the_image_is_not_taken(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    millpond_driver.compute.kill()
    cloud.force_down(millpond_driver.compute)
    try:
        cloud.admin.compute.evacuate_server(server)
        user.await_truth(lambda: "No valid host" in cloud.fault(server.id, "evacuate"))
        user.await_truth(lambda: not user.look(server).task_state)
    finally:
        millpond_driver.run()
        cloud.force_down(millpond_driver.compute, forced=False)
    assert roles(other_host.compute.hypervisor, server) == set()
    if user.look(server).status == "ERROR":  # so Nova leaves it when it finds no host
        cloud.admin.compute.reset_server_state(server, "active")
    user.reboot(server, "HARD")
    is_at(cloud, user, server, "weir", 2)


def test_it_is_unshelved_where_its_image_is_taken(
    cloud: Cloud, user: CloudUser, server: Server, millpond_driver: Deployment
) -> None:
    user.shelve(server)
    cloud.offer_host(millpond_driver.compute, offered=False)
    try:
        user.begin_to_unshelve(server)
        user.await_end_of(server, "unshelve")
        user.wait(server, "SHELVED_OFFLOADED")
    finally:
        cloud.offer_host(millpond_driver.compute)
    user.unshelve(server)
    is_at(cloud, user, server, "weir", 2)


def test_every_move_goes_where_the_image_is_taken(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    """As soon as the other host takes it, too."""
    other_host.start("raw:qcow2, qcow2:raw")
    admin = cloud.admin.compute
    try:
        admin.migrate_server(server)
        user.wait(server, "VERIFY_RESIZE")
        user.confirm(server)
        is_at(cloud, user, server, "dam", 2)
        admin.live_migrate_server(server, host=None, block_migration="auto")
        user.await_truth(lambda: cloud.host_of(server.id) == "weir")
        user.await_console(server, "TICK")  # in the middle of its life
        user.reboot(server, "HARD")
        is_at(cloud, user, server, "weir", 3)
        with evacuated(cloud, user, server, "dam", millpond_driver):
            pass
        assert cloud.host_of(server.id) == "dam"
        user.delete(server)
    finally:
        other_host.start("raw:qcow2", extra={"compute": {"image_type_exclude_list": "qcow2,vmdk"}})
