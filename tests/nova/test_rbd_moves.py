"""Servers with disks in Ceph are resized, and move between two hosts, without a byte of them."""

import json
from collections.abc import Iterator

import pytest
from openstack.compute.v2.server import Server

from tests.ceph.conftest import make_secret
from tests.nova.conftest import Offer, create, create_at_weir, evacuated
from tests.nova.domains import disks, has_domain, volumes
from tests.support.ceph import Ceph, RbdPool
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

POOL = "vms-of-many"

# So that what is unshelved is in Ceph again, as the mapping has it.
_RAW_SNAPSHOTS = {"snapshot_image_format": "raw"}


@pytest.fixture(scope="module")
def access(ceph: Ceph, hypervisor: PrivateLibvirtd, other_host: Deployment) -> dict[str, object]:
    """Options of [libvirt], the same on both hosts: so is the name of the secret."""
    ceph.make_pool(POOL)
    key = ceph.make_user(POOL, POOL)
    secret = ""
    for each in (hypervisor, other_host.compute.hypervisor):
        with each.connect() as connection:
            secret = make_secret(connection, POOL, key, secret)
    return {
        "images_rbd_pool": POOL,
        "images_rbd_ceph_conf": ceph.client_conf(RbdPool(name=POOL, user=POOL, secret=secret)),
        "rbd_user": POOL,
        "rbd_secret_uuid": secret,
    }


@pytest.fixture(scope="module")
def in_ceph(
    millpond_driver: Deployment,
    other_host: Deployment,
    access: dict[str, object],
) -> Iterator[None]:
    """The root disks of raw images, on both hosts."""
    hosts = (millpond_driver, other_host)
    for each in hosts:
        each.start("raw:rbd, qcow2:qcow2", extra={"libvirt": {**access, **_RAW_SNAPSHOTS}})
    yield
    for each in hosts:
        each.start()


@pytest.fixture(scope="module")
def small(cloud: Cloud) -> str:
    return cloud.offer_flavor(disk=1, swap=64)


@pytest.fixture
def server(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    in_ceph: None,
    small: str,
    target: str,
    other_host: Deployment,
) -> Server:
    return create_at_weir(cloud, user, offer, "raw", other_host, small)


def images_of(ceph: Ceph, server: Server) -> dict[str, str]:
    """In Ceph, with the ids that say whether one is the same."""
    names = json.loads(ceph.rbd("ls", "--format", "json", POOL))
    return {
        each.removeprefix(f"{server.id}_"): json.loads(
            ceph.rbd("info", "--format", "json", f"{POOL}/{each}")
        )["id"]
        for each in names
        if each.startswith(server.id)
    }


def is_at(cloud: Cloud, deployment: Deployment, other: Deployment, server: Server) -> None:
    host = deployment.compute.host
    assert cloud.host_of(server.id) == host
    assert cloud.consumers() == {host: {server.id}, other.compute.host: set()}
    assert not has_domain(other.compute.hypervisor, server)
    assert {each for each in volumes(other.compute.hypervisor) if server.id in each} == set()
    assert (deployment.problems(), other.problems()) == ([], [])
    root = disks(deployment.compute.hypervisor, server)[0]
    assert (root.get("type"), root.find("source").get("protocol")) == ("network", "rbd")


def is_gone(user: CloudUser, ceph: Ceph, server: Server) -> None:
    user.delete(server)
    assert images_of(ceph, server) == {}


def test_a_resize_is_confirmed_or_reverted(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    ceph: Ceph,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    cloud.offer_host(other_host.compute, offered=False)
    larger = cloud.offer_flavor(disk=2, swap=128)
    user.resize(server, larger)
    user.await_console(server, "BOOTS 0002")
    assert set(images_of(ceph, server)) == {"disk", "disk.saved"}
    user.revert(server)
    user.await_console(server, "BOOTS 0002")  # of a disk that had booted once
    assert len(images_of(ceph, server)) == 1
    is_at(cloud, millpond_driver, other_host, server)
    user.resize(server, larger)
    user.confirm(server)
    user.await_console(server, "BOOTS 0003")
    (root,) = images_of(ceph, server)
    told = json.loads(ceph.rbd("info", "--format", "json", f"{POOL}/{server.id}_{root}"))
    assert told["size"] == 2 * 1024**3
    is_at(cloud, millpond_driver, other_host, server)
    is_gone(user, ceph, server)


def test_it_is_migrated_and_comes_back(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    ceph: Ceph,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    before = images_of(ceph, server)
    cloud.admin.compute.migrate_server(server, host=target)
    user.wait(server, "VERIFY_RESIZE")
    user.await_console(server, "BOOTS 0002")
    user.revert(server)
    user.await_console(server, "BOOTS 0003")  # it is one disk
    is_at(cloud, millpond_driver, other_host, server)
    cloud.admin.compute.migrate_server(server, host=target)
    user.wait(server, "VERIFY_RESIZE")
    user.confirm(server)
    user.await_console(server, "BOOTS 0004")
    assert images_of(ceph, server) == before
    is_at(cloud, other_host, millpond_driver, server)
    is_gone(user, ceph, server)


def test_it_is_migrated_while_it_runs(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    ceph: Ceph,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    before = images_of(ceph, server)
    user.connection.compute.pause_server(server)
    user.wait(server, "PAUSED")
    user.connection.compute.unpause_server(server)
    user.wait(server, "ACTIVE")
    cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == target)
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "TICK")
    assert images_of(ceph, server) == before
    is_at(cloud, other_host, millpond_driver, server)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    is_gone(user, ceph, server)


def test_it_is_evacuated_with_its_disk(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    ceph: Ceph,
    hypervisor: PrivateLibvirtd,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    before = images_of(ceph, server)
    with hypervisor.connect() as connection:  # with its host
        connection.lookupByUUIDString(server.id).destroy()
    with evacuated(cloud, user, server, target, millpond_driver):
        assert "BOOTS 0001" not in user.await_console(server, "READY")
    assert images_of(ceph, server) == before
    is_at(cloud, other_host, millpond_driver, server)
    is_gone(user, ceph, server)


def test_it_is_shelved_and_comes_back_on_another_host(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    ceph: Ceph,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    user.shelve(server)
    assert images_of(ceph, server) == {}
    cloud.offer_host(millpond_driver.compute, offered=False)
    try:
        user.unshelve(server)
    finally:
        cloud.offer_host(millpond_driver.compute)
    user.await_console(server, "BOOTS 0002")
    is_at(cloud, other_host, millpond_driver, server)
    is_gone(user, ceph, server)


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_it_is_suspended(
    user: CloudUser, offer: Offer, in_ceph: None, small: str, format: str
) -> None:
    server = create(user, offer, format, small)
    user.connection.compute.suspend_server(server)
    user.wait(server, "SUSPENDED")
    user.connection.compute.resume_server(server)
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "TICK")


def test_it_goes_on_when_ceph_is_back(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    server: Server,
    ceph: Ceph,
    small: str,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    """Nobody starts nova-compute again."""
    pid = millpond_driver.compute.pid
    ceph.stop()
    ceph.start()
    seen = user.await_console(server, "TICK").count("TICK")
    user.await_truth(lambda: user.await_console(server, "TICK").count("TICK") > seen)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    create_at_weir(cloud, user, offer, "raw", other_host, small)
    assert millpond_driver.compute.pid == pid
    assert millpond_driver.problems() == []
