"""What servers go through on two hosts that share the directory of instances, with our driver and
with the one that Nova comes with: one list for both, so that their columns can be compared. How
ours moves disks between hosts that share nothing is in test_moves.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from tests.nova.conftest import Offer, create_at_weir, evacuated, new_hypervisor
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import NOVA, Deployment
from tests.support.openstack.nova import Sections
from tests.support.openstack.user import CloudUser

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("measured"),
    pytest.mark.full,
]

COUNT = 20

# Nova's own driver moves disks by ssh, unless the other host has its own address: then it takes
# the directory for the same one, which here it is.
WITHOUT_SSH: Sections = {"DEFAULT": {"my_ip": ADDRESS}}


@pytest.fixture(scope="module")
def pair(
    cloud: Cloud, either: Deployment, session_directory: Path
) -> Iterator[tuple[Deployment, Deployment]]:
    with new_hypervisor(session_directory, "dam") as libvirtd:
        cloud.offer_volumes(libvirtd)
        compute = cloud.new_compute(libvirtd)
        compute.directory.mkdir(exist_ok=True)
        other = Deployment(cloud, either.driver, compute, place=either.place)
        other.instances = either.instances
        for each in (either, other):
            each.start(extra=WITHOUT_SSH if either.driver == NOVA else {})
        yield either, other
        other.compute.stop()


@pytest.fixture
def counted(pair: tuple[Deployment, Deployment]) -> list[PrivateLibvirtd]:
    return [each.compute.hypervisor for each in pair]


@pytest.fixture
def server(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    pair: tuple[Deployment, Deployment],
    format: str,
) -> Server:
    """On the first host."""
    return create_at_weir(cloud, user, offer, format, pair[1], offer.flavor)


@pytest.fixture
def there(pair: tuple[Deployment, Deployment]) -> str:
    return pair[1].compute.host


def is_at(cloud: Cloud, user: CloudUser, server: Server, host: str) -> None:
    user.wait(server, "ACTIVE")
    assert cloud.host_of(server.id) == host
    assert cloud.hosts_with_allocations(server.id) == [host]


both_formats = pytest.mark.parametrize("format", ["qcow2", "raw"])


@both_formats
@pytest.mark.parametrize("end", ["confirmed", "reverted"])
def test_it_is_migrated(
    cloud: Cloud, user: CloudUser, server: Server, there: str, end: str
) -> None:
    cloud.admin.compute.migrate_server(server, host=there)
    user.wait(server, "VERIFY_RESIZE")
    user.await_console(server, "BOOTS 0002")
    if end == "confirmed":
        user.confirm(server)
        is_at(cloud, user, server, there)
        user.reboot(server, "HARD")
    else:
        user.revert(server)
        is_at(cloud, user, server, "weir")
    user.await_console(server, "BOOTS 0003")


@both_formats
def test_it_is_migrated_while_it_runs(
    cloud: Cloud, user: CloudUser, server: Server, there: str
) -> None:
    cloud.admin.compute.live_migrate_server(server, host=there, block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == there)
    is_at(cloud, user, server, there)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")


@both_formats
def test_it_is_evacuated_with_its_disks(
    cloud: Cloud, user: CloudUser, server: Server, there: str, either: Deployment
) -> None:
    with evacuated(cloud, user, server, there, either):
        user.await_console(server, "BOOTS 0002")
    is_at(cloud, user, server, there)


@pytest.mark.parametrize("round", [1, 2, 3])
def test_twenty_at_once_are_created_and_deleted(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    pair: tuple[Deployment, Deployment],
    round: int,
) -> None:
    made = [
        user.begin_to_create(offer.images[format], offer.flavor)
        for format in ("qcow2", "raw")
        for _ in range(COUNT // 2)
    ]
    for each in made:
        user.wait(each, "ACTIVE")
    for each in made:
        user.await_console(each, "READY")
    assert {cloud.host_of(each.id) for each in made} == {each.compute.host for each in pair}
    user.delete(*made)
    user.await_truth(lambda: not any(cloud.consumers().values()))
    for each in pair:
        with each.compute.hypervisor.connect() as connection:
            assert connection.listAllDomains() == []
    left = [each.name for one in made for each in pair[0].instances.rglob(f"{one.id}*")]
    assert left == []
