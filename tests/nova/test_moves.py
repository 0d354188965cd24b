"""Servers are resized, and move between hosts, with their disks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server
from openstack.exceptions import BadRequestException

from millpond.model.sizes import GiB, MiB
from tests.nova.conftest import Offer, create, create_at_weir, evacuated, from_image
from tests.nova.domains import ALL, forget_pools, has_domain, roles, volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import NOVA, Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

FORMATS = ("qcow2", "raw")


@pytest.fixture(params=FORMATS)
def server(
    request: pytest.FixtureRequest, user: CloudUser, offer: Offer, millpond_driver: Deployment
) -> Server:
    """With disks of all kinds."""
    return create(user, offer, request.param)


def path_of(libvirtd: PrivateLibvirtd, volume: str) -> Path:
    with libvirtd.connect() as connection:
        for pool in connection.listAllStoragePools():
            if volume in pool.listVolumes():
                return Path(pool.storageVolLookupByName(volume).path())
    raise AssertionError(volume)


def content(libvirtd: PrivateLibvirtd, server: Server, workdir: Path, role: str = "disk") -> bytes:
    """What its guest would see on it."""
    path, copy = path_of(libvirtd, f"{server.id}_{role}"), workdir / "content"
    format = format_of(libvirtd, path)
    libvirtd.run("qemu-img", "convert", "-f", format, "-O", "raw", str(path), str(copy))
    return copy.read_bytes()


def scribble(libvirtd: PrivateLibvirtd, server: Server, role: str = "disk") -> None:
    """As its guest would, were it on."""
    path = path_of(libvirtd, f"{server.id}_{role}")
    what = "write -P 0x55 1M 64k"
    libvirtd.run("qemu-io", "-f", format_of(libvirtd, path), "-c", what, str(path))


def format_of(libvirtd: PrivateLibvirtd, path: Path) -> str:
    with open(f"/proc/{libvirtd.pid}/root{path}", "rb") as file:
        return "qcow2" if file.read(4) == b"QFI\xfb" else "raw"


def size(libvirtd: PrivateLibvirtd, server: Server, role: str) -> int:
    with libvirtd.connect() as connection:
        for pool in connection.listAllStoragePools():
            for volume in pool.listAllVolumes():
                if volume.name() == f"{server.id}_{role}":
                    return int(volume.info()[1])
    raise AssertionError(role)


def is_tidy(cloud: Cloud, deployment: Deployment, server: Server, host: str) -> None:
    assert cloud.hosts_with_allocations(server.id) == [host]
    assert deployment.problems() == []


def test_a_resize_is_confirmed(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    larger: str,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    user.resize(server, larger)
    user.await_console(server, "BOOTS 0002")
    assert size(hypervisor, server, "disk") == 2 * GiB
    assert size(hypervisor, server, "disk.eph0") == 1 * GiB, "as Nova's block device says"
    assert size(hypervisor, server, "disk.swap") == 128 * MiB
    assert {"disk.saved", "disk.eph0.saved"} <= roles(hypervisor, server)
    user.confirm(server)
    assert roles(hypervisor, server) == ALL
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0003")
    is_tidy(cloud, millpond_driver, server, "weir")


def test_each_revert_gives_the_bytes_of_its_own_start(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    larger: str,
    workdir: Path,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    for suffix, after in (("", ".saved"), (".saved", "")):
        user.stop(server)
        before = content(hypervisor, server, workdir, f"disk{suffix}")
        user.resize(server, larger)
        scribble(hypervisor, server, f"disk{suffix}")
        user.revert(server, "SHUTOFF")
        assert content(hypervisor, server, workdir, f"disk{after}") == before
        assert size(hypervisor, server, "disk.swap") == 64 * MiB
        assert roles(hypervisor, server) == {
            "disk.config",
            "disk.swap",
            f"disk{after}",
            f"disk.eph0{after}",
        }
        user.start(server)
        user.await_console(server, "READY")
    is_tidy(cloud, millpond_driver, server, "weir")
    user.delete(server)
    assert volumes(hypervisor) == set()


def test_it_is_migrated(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    hypervisor: PrivateLibvirtd,
    other_host: Deployment,
    there: PrivateLibvirtd,
) -> None:
    cloud.admin.compute.migrate_server(server, host=target)
    user.wait(server, "VERIFY_RESIZE")
    user.await_console(server, "BOOTS 0002")
    assert cloud.host_of(server.id) == target
    user.confirm(server)
    assert roles(there, server) == ALL
    assert roles(hypervisor, server) == set()
    assert not has_domain(hypervisor, server)
    is_tidy(cloud, other_host, server, target)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0003")
    user.delete(server)
    assert volumes(there) == set()


def test_a_migration_is_reverted(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    workdir: Path,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    there: PrivateLibvirtd,
) -> None:
    user.stop(server)
    before = content(hypervisor, server, workdir)
    cloud.admin.compute.migrate_server(server, host=target)
    user.wait(server, "VERIFY_RESIZE")
    assert content(there, server, workdir) == before
    scribble(there, server)
    user.revert(server, "SHUTOFF")
    assert content(hypervisor, server, workdir) == before
    assert roles(hypervisor, server) == ALL
    assert volumes(there) == set()
    is_tidy(cloud, millpond_driver, server, "weir")
    user.start(server)
    user.await_console(server, "BOOTS 0002")


def ticks(user: CloudUser, server: Server) -> list[int]:
    shown = user.await_console(server, "TICK")
    return [int(each, 16) for each in re.findall(r"TICK ([0-9A-F]{4})", shown)]


def test_it_is_migrated_while_it_runs(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    hypervisor: PrivateLibvirtd,
    other_host: Deployment,
    there: PrivateLibvirtd,
) -> None:
    last = ticks(user, server)[-1]
    cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == target)
    user.wait(server, "ACTIVE")
    user.await_truth(lambda: ticks(user, server)[-1] > last + 3)
    seen = ticks(user, server)
    assert seen == list(range(seen[0], seen[-1] + 1)), "it is the guest that ran before"
    assert roles(there, server) == ALL
    assert roles(hypervisor, server) == set()
    is_tidy(cloud, other_host, server, target)
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    user.delete(server)
    assert volumes(there) == set()


def test_a_live_migration_that_fails_leaves_it_running_where_it_was(
    cloud: Cloud,
    user: CloudUser,
    server: Server,
    target: str,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
    other_host: Deployment,
    there: PrivateLibvirtd,
) -> None:
    """Its domain there has a name that is taken."""
    name = cloud.admin.compute.get_server(server.id).instance_name
    with there.connect() as connection:
        taken = connection.defineXML(
            f"<domain type='qemu'><name>{name}</name><memory>1024</memory>"
            "<os><type>hvm</type></os></domain>"
        )
        cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
        user.await_truth(lambda: cloud.status_of_move(server.id) in ("error", "failed"))
        user.wait(server, "ACTIVE")
        taken.undefine()
    user.await_truth(lambda: not roles(there, server))  # the other host is not waited for
    user.await_truth(lambda: not (other_host.instances / server.id).exists())
    assert roles(hypervisor, server) == ALL
    is_tidy(cloud, millpond_driver, server, "weir")
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")


@pytest.fixture
def stock(cloud: Cloud, target: str, other_host: Deployment) -> Iterator[str]:
    """The other host with Nova's own driver."""
    Deployment(cloud, NOVA, other_host.compute).start()
    yield target
    other_host.start()


def test_a_host_with_another_driver_gets_no_disks_of_ours(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    stock: str,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = create(user, offer, "qcow2")
    refused = "does not run Millpond's driver"
    cloud.admin.compute.migrate_server(server, host=stock)
    user.await_truth(lambda: refused in cloud.fault(server.id, "migrate"))
    user.wait(server, "ACTIVE")
    with pytest.raises(BadRequestException, match="No valid host"):  # Nova asks each in turn
        cloud.admin.compute.live_migrate_server(server, host=stock, block_migration="auto")
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "READY")
    assert roles(hypervisor, server) == ALL
    is_tidy(cloud, millpond_driver, server, "weir")


def test_a_server_is_not_made_smaller(
    cloud: Cloud, user: CloudUser, offer: Offer, server: Server, larger: str
) -> None:
    user.connection.compute.resize_server(server, offer.flavor)
    user.await_truth(lambda: "smaller ephemeral disks" in cloud.fault(server.id, "resize"))
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "READY")


@pytest.fixture
def sharing(
    cloud: Cloud,
    millpond_driver: Deployment,
    other_host: Deployment,
    target: str,
    session_directory: Path,
) -> Iterator[Path]:
    """Both hosts have one directory of disks."""
    place = session_directory / "shared-disks"
    place.mkdir(mode=0o755, exist_ok=True)
    for deployment in (millpond_driver, other_host):
        deployment.compute.stop()
        forget_pools(deployment.compute.hypervisor)
        deployment.start(extra={"libvirt": {"disks_pool_path": place}})
    yield place
    for deployment in (millpond_driver, other_host):
        deployment.compute.stop()
        forget_pools(deployment.compute.hypervisor)
        deployment.start()


@pytest.fixture(scope="module")
def with_swap(cloud: Cloud) -> str:
    """And without a file system of the host's own: that one is backed by what it formatted."""
    return cloud.offer_flavor(disk=1, swap=64)


def test_what_is_backed_by_what_its_host_formatted_does_not_leave_it(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    sharing: Path,
    target: str,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    server = create_at_weir(cloud, user, offer, "qcow2", other_host)
    refused = "cannot have what disk.eph0 is backed by"
    cloud.admin.compute.migrate_server(server, host=target)
    user.await_truth(lambda: refused in cloud.fault(server.id, "migrate"))
    user.wait(server, "ACTIVE")
    with pytest.raises(BadRequestException, match="No valid host"):
        cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
    user.wait(server, "ACTIVE")
    assert "BOOTS 0002" not in user.await_console(server, "READY")
    is_tidy(cloud, millpond_driver, server, "weir")
    user.delete(server)
    assert _inodes(sharing, server) == {}


def test_in_a_shared_pool_nothing_is_copied(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    sharing: Path,
    with_swap: str,
    target: str,
    millpond_driver: Deployment,
    other_host: Deployment,
) -> None:
    server = create_at_weir(cloud, user, offer, "qcow2", other_host, with_swap)
    inodes = _inodes(sharing, server)
    cloud.admin.compute.live_migrate_server(server, host=target, block_migration="auto")
    user.await_truth(lambda: cloud.host_of(server.id) == target)
    user.wait(server, "ACTIVE")
    assert _inodes(sharing, server) == inodes
    cloud.admin.compute.migrate_server(server, host="weir")
    user.wait(server, "VERIFY_RESIZE")
    user.await_console(server, "BOOTS 0002")
    user.confirm(server)
    assert _inodes(sharing, server) == inodes
    is_tidy(cloud, millpond_driver, server, "weir")

    cloud.offer_host(millpond_driver.compute, offered=False)  # so that it goes to the other one
    user.resize(server, cloud.offer_flavor(disk=2, swap=128))
    assert cloud.host_of(server.id) == target
    user.await_console(server, "BOOTS 0003")
    user.revert(server)
    cloud.offer_host(millpond_driver.compute)
    user.await_console(server, "BOOTS 0003")
    is_tidy(cloud, millpond_driver, server, "weir")
    user.delete(server)
    assert _inodes(sharing, server) == {}


def _inodes(place: Path, server: Server) -> dict[str, int]:
    return {each.name: each.stat().st_ino for each in place.glob(f"{server.id}_*")}


def test_a_server_in_a_shared_pool_is_evacuated_with_its_disks(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    sharing: Path,
    with_swap: str,
    target: str,
    millpond_driver: Deployment,
    other_host: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = create_at_weir(cloud, user, offer, "qcow2", other_host, with_swap)
    inodes = _inodes(sharing, server)
    with hypervisor.connect() as connection:  # with its host
        connection.lookupByUUIDString(server.id).destroy()
    with evacuated(cloud, user, server, target, millpond_driver):
        # Nova boots it once by itself, and may shut it off before the guest has counted that.
        count = _boots(user, server)
        assert count in (2, 3)
    assert not has_domain(hypervisor, server)
    assert _inodes(sharing, server) == inodes
    is_tidy(cloud, other_host, server, target)
    user.reboot(server, "HARD")
    user.await_console(server, f"BOOTS {count + 1:04}")
    user.delete(server)
    assert _inodes(sharing, server) == {}


def _boots(user: CloudUser, server: Server) -> int:
    shown = re.findall(r"BOOTS (\d{4})", user.await_console(server, "READY"))
    return int(shown[-1])


def test_without_its_disks_a_server_is_evacuated_from_its_image(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    target: str,
    millpond_driver: Deployment,
    other_host: Deployment,
    hypervisor: PrivateLibvirtd,
    there: PrivateLibvirtd,
) -> None:
    """As Nova's own driver does it."""
    server = create_at_weir(cloud, user, offer, "raw", other_host)
    for count in ("0002", "0003"):
        user.reboot(server, "HARD")
        user.await_console(server, f"BOOTS {count}")
    with evacuated(cloud, user, server, target, millpond_driver):
        # Nova boots it once by itself, and may shut it off before the guest has counted that.
        assert _boots(user, server) in (1, 2)
        assert roles(there, server) == ALL
        assert roles(hypervisor, server) == ALL
    assert not has_domain(hypervisor, server)
    assert roles(hypervisor, server) == set()
    is_tidy(cloud, other_host, server, target)
    user.delete(server)
    assert volumes(there) == set()


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
        with evacuated(cloud, user, server, other_host.compute.host, millpond_driver):
            # Nova boots it once by itself, and may shut it off before the guest has counted that.
            assert "BOOTS 0001" not in user.await_console(server, "READY")
        assert not has_domain(hypervisor, server)
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
        with evacuated(cloud, user, server, target, millpond_driver):
            user.await_console(server, "READY")
            assert has_domain(hypervisor, server)
        assert not has_domain(hypervisor, server)
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
        user.reboot(old, "HARD")
        user.await_console(old, "BOOTS 0002")
        user.clear()
    finally:
        millpond_driver.start()
