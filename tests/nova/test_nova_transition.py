"""A host changes from Nova's own driver to ours and back, with its servers."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from tests.nova.conftest import Offer
from tests.nova.domains import volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.user import CloudUser
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]

MANY = {"DEFAULT": dict.fromkeys(("cpu_allocation_ratio", "ram_allocation_ratio"), 32)}
"""For as many servers on a small machine."""
DISKS = ["disk", "disk.config", "disk.eph0", "disk.swap"]
SECONDS = 120


class Reed:
    """A host of its own, to which all servers go: with Nova's own driver, and then with ours in
    the same directory."""

    def __init__(self, cloud: Cloud, libvirtd: PrivateLibvirtd) -> None:
        compute = cloud.new_compute(libvirtd)
        compute.directory.mkdir(exist_ok=True)
        self.libvirtd = libvirtd
        self.nova = Deployment(cloud, NOVA, compute)
        self.ours = Deployment(cloud, MILLPOND, compute, place=NOVA)

    def run_nova(self, images_type: str = "qcow2") -> None:
        self.nova.start(extra={**MANY, "libvirt": {"images_type": images_type}})

    def run_ours(self, images_type: str = "qcow2") -> None:
        self.ours.start(extra={**MANY, "libvirt": {"images_type": images_type}})

    def disks(self, server: Server) -> list[str]:
        """The files that are disks."""
        found = (each.name for each in (self.nova.instances / server.id).glob("disk*"))
        return sorted(each for each in found if each != "disk.info")

    def volumes(self, server: Server) -> list[str]:
        found = (each.partition("_") for each in volumes(self.libvirtd))
        return sorted(role for owner, _, role in found if owner == server.id)

    def boots(self, server: Server) -> int:
        log = (self.nova.instances / server.id / "console.log").read_text(errors="replace")
        return max((int(each, 16) for each in re.findall(r"BOOTS ([0-9A-F]+)", log)), default=0)

    def await_boot(self, server: Server, number: int) -> None:
        wait_for(lambda: self.boots(server) == number, SECONDS)

    def listing(self, server: Server) -> dict[str, tuple[object, ...]]:
        """Of the server's directory, with all that it holds."""
        return {each.name: _look(each) for each in (self.nova.instances / server.id).iterdir()}

    def running(self) -> dict[str, int]:
        """The domains that run, by their UUID, with what libvirt counts their starts by."""
        with self.libvirtd.connect() as connection:
            found = [connection.lookupByID(each) for each in connection.listDomainsID()]
            return {each.UUIDString(): each.ID() for each in found}

    @property
    def log(self) -> str:
        return self.ours.compute.log.read_text()

    def warnings(self, server: Server) -> list[str]:
        return [each for each in self.log.splitlines() if "WARNING" in each and server.id in each]


def _look(path: Path) -> tuple[object, ...]:
    found = path.stat()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid, digest


@pytest.fixture(scope="module")
def reed(cloud: Cloud, session_directory: Path) -> Iterator[Reed]:
    admin = cloud.admin.compute
    others = [each for each in admin.services(binary="nova-compute") if each.status == "enabled"]
    for each in others:
        admin.disable_service(each)
    with PrivateLibvirtd(session_directory / "nova-reed", name="reed") as libvirtd:
        cloud.offer_volumes(libvirtd)
        made = Reed(cloud, libvirtd)
        made.run_nova()
        cloud.offer_host(made.nova.compute)
        yield made
        cloud.offer_host(made.nova.compute, offered=False)
        made.nova.compute.stop()
    for each in others:
        admin.enable_service(each)


@pytest.fixture
def guests(reed: Reed, user: CloudUser) -> Iterator[CloudUser]:
    """The user, whose servers are deleted while their host runs."""
    yield user
    user.clear()
    assert volumes(reed.libvirtd) == set()


def create(user: CloudUser, offer: Offer, count: int) -> list[Server]:
    """From both formats, with disks of all kinds; every second one is stopped."""
    made = [
        user.create(
            offer.images[("qcow2", "raw")[number // 2 % 2]],
            offer.flavor_with_all_disks,
            config_drive=True,
        )
        for number in range(count)
    ]
    for number, each in enumerate(made):
        user.await_console(each, "READY")
        if number % 2:
            user.stop(each)
    return made


@pytest.mark.parametrize(("images_type", "count"), [("qcow2", 10), ("raw", 4)])
def test_a_host_changes_to_our_driver_and_back(
    reed: Reed, guests: CloudUser, offer: Offer, images_type: str, count: int
) -> None:
    reed.run_nova(images_type)
    servers = create(guests, offer, count)
    *moved, runs_on, stays = servers
    boots = {each.id: reed.boots(each) for each in servers}
    before, running = reed.listing(stays), reed.running()

    reed.run_ours(images_type)
    _all_are_named(reed, servers)
    assert reed.running() == running
    for number, each in enumerate(moved):
        if number % 2:
            guests.start(each)
        else:
            guests.reboot(each, "HARD")
        reed.await_boot(each, boots[each.id] + 1)
        assert (reed.disks(each), reed.volumes(each)) == ([], DISKS), reed.warnings(each)
    assert reed.ours.problems() == []
    code, left = reed.ours.transition("status")
    assert (code, {each["server"] for each in left}) == (0, {runs_on.id, stays.id})
    assert reed.listing(stays) == before

    for each in moved:
        guests.stop(each)
    code, told = reed.ours.transition("revert", "--all")
    assert (code, {each["server"]: each["disks"] for each in told}) == (
        *(0, {each.id: len(DISKS) for each in moved}),
    )
    assert volumes(reed.libvirtd) == set()
    reed.run_nova(images_type)
    assert reed.listing(stays) == before
    assert reed.running() == {runs_on.id: running[runs_on.id]}
    for each in moved:
        assert reed.disks(each) == DISKS
        guests.start(each)
        reed.await_boot(each, boots[each.id] + 2)
    guests.start(stays)
    reed.await_boot(stays, boots[stays.id] + 1)
    guests.reboot(runs_on, "HARD")
    reed.await_boot(runs_on, boots[runs_on.id] + 1)


def _all_are_named(reed: Reed, servers: list[Server]) -> None:
    named = [each for each in reed.log.splitlines() if "Nova's own driver made: " in each]
    warning = named[-1]  # the log is that of all its starts
    assert f"driver made: {len(servers)}. Each comes" in warning
    status, found = reed.ours.doctor()
    (told,) = (each["what"] for each in found if each["check"] == "legacy")
    assert status == 0
    assert f"{len(servers)} servers with disks that Nova's own driver made" in told
    for each in servers:
        assert each.id in warning


def test_libvirt_storage_is_refused_while_there_is_such_a_server(
    reed: Reed, guests: CloudUser, offer: Offer
) -> None:
    reed.run_nova()
    server = guests.create(offer.images["qcow2"], offer.flavor)
    running = reed.running()
    with pytest.raises(RuntimeError, match=f"images_type: .*{server.id}"):
        reed.ours.start()
    reed.ours.compute.kill()
    assert reed.running() == running
    reed.run_ours()
    guests.reboot(server, "HARD")
    assert reed.disks(server) == []
    reed.ours.start()
    guests.reboot(server, "HARD")
    reed.await_boot(server, 3)


def test_a_killed_nova_compute_completes_it(reed: Reed, guests: CloudUser, offer: Offer) -> None:
    reed.run_nova()
    server = guests.create(offer.images["qcow2"], offer.flavor_with_all_disks, config_drive=True)
    guests.await_console(server, "READY")
    guests.stop(server)
    reed.run_ours()
    boots = reed.boots(server)
    for step in ("prepare", "move", "remove"):
        for moment in ("begin", "end"):
            reed.ours.run_until("transition", step, moment)
            guests.connection.compute.start_server(server)
            reed.ours.compute.await_end()
            reed.ours.run()
            guests.wait(server, "ACTIVE")  # Nova starts it again by itself
            boots += 1
            reed.await_boot(server, boots)
            assert (reed.disks(server), reed.volumes(server)) == ([], DISKS), (step, moment)
            assert reed.ours.problems() == []
            guests.stop(server)
            assert reed.ours.transition("revert", server.id)[0] == 0
            assert reed.disks(server) == DISKS
    code, told = reed.ours.transition("run", "--all")
    assert (code, [each["disks"] for each in told]) == (0, [4])
    guests.start(server)
    reed.await_boot(server, boots + 1)


def test_one_that_runs_is_killed_in_its_hard_reboot(
    reed: Reed, guests: CloudUser, offer: Offer
) -> None:
    reed.run_nova()
    server = guests.create(offer.images["raw"], offer.flavor_with_all_disks, config_drive=True)
    guests.await_console(server, "READY")
    reed.run_ours()
    reed.ours.run_until("transition", "move", "end")
    guests.connection.compute.reboot_server(server, "HARD")
    reed.ours.compute.await_end()
    reed.ours.run()
    guests.wait(server, "ACTIVE")
    reed.await_boot(server, 2)
    assert (reed.disks(server), reed.volumes(server)) == ([], DISKS)


def test_one_that_runs_comes_into_the_pools_when_it_is_resized(
    cloud: Cloud, reed: Reed, guests: CloudUser, offer: Offer
) -> None:
    reed.run_nova()
    server = guests.create(offer.images["qcow2"], offer.flavor_with_all_disks, config_drive=True)
    guests.await_console(server, "READY")
    reed.run_ours()
    larger = cloud.offer_flavor(disk=2, ephemeral=2, swap=128)
    guests.resize(server, larger)
    reed.await_boot(server, 2)
    assert reed.disks(server) == []
    guests.revert(server)
    reed.await_boot(server, 2)  # the disk as it was before
    assert (reed.disks(server), _roles(reed, server)) == ([], DISKS)
    guests.resize(server, larger)
    guests.confirm(server)
    reed.await_boot(server, 3)
    assert (reed.disks(server), _roles(reed, server)) == ([], DISKS)


def _roles(reed: Reed, server: Server) -> list[str]:
    """Of disks that may have either name."""
    return sorted(each.removesuffix(".saved") for each in reed.volumes(server))


def test_one_that_cannot_be_resized_runs_on_in_the_pools(
    cloud: Cloud, reed: Reed, guests: CloudUser, offer: Offer
) -> None:
    reed.run_nova()
    server = guests.create(offer.images["qcow2"], offer.flavor_with_all_disks, config_drive=True)
    guests.await_console(server, "READY")
    reed.run_ours()
    guests.connection.compute.resize_server(server, offer.flavor)
    guests.await_truth(lambda: "smaller ephemeral disks" in cloud.fault(server.id, "resize"))
    guests.wait(server, "ACTIVE")
    reed.await_boot(server, 2)
    assert (reed.disks(server), reed.volumes(server)) == ([], DISKS)
