"""Servers move between hosts that have volume groups of their own."""

import pytest

from millpond.errors import HostProblem
from millpond.hosts.deployment import Deployment
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.servers.migrate import MigrateRequest, migrate
from tests.lvm.volume_group import SOIL
from tests.real.test_live_migrate import tick_on_disk
from tests.real.test_migrate_daemons import wait_until_booted
from tests.support.guest_ticks import MovingGuest
from tests.support.killer import kill_at

pytestmark = pytest.mark.timeout(1200)
"""Seconds: seven minutes were measured on a busy machine."""

WRITTEN = b"written by the guest"
LAST = 16 * MiB - len(WRITTEN)
"""Of the data disk."""
ALL = 64 * MiB
"""More than the disks of a server take."""


def create(lvm_hosts, guest, *words):
    """On alder, with a data disk to which its guest has written. What is free in birch's group is
    not empty."""
    groups = lvm_hosts.groups
    lvm_hosts.ok("image", "add", guest.path, "--name", "guest")
    usual = ("--image", "guest", "--memory", "16M", "--network", "none", "--host", "alder")
    made = lvm_hosts.json("server", "create", "web", *usual, "--no-start", *words)
    lvm_hosts.ok("server", "disk", "add", "web", "--size", "16M")
    with groups["alder"].path(f"{made['id']}_disk.data0").open("r+b") as device:
        device.seek(LAST)
        device.write(WRITTEN)
    groups["birch"].soil(ALL)
    return made["id"]


def check_only_on_birch(lvm_hosts, id):
    """Nobody who gets the extents of alder's volumes finds anything in them."""
    groups = lvm_hosts.groups
    server = lvm_hosts.deployment().server("web")
    assert (server.host, server.operation, server.leftovers) == ("birch", None, ())
    sizes = {each.volume: each.size for each in server.disks if each.backend == "lvm"}
    assert groups["birch"].volumes() == sizes
    assert groups["alder"].volumes() == {}
    groups["alder"].create("next", ALL)
    assert WRITTEN not in groups["alder"].read("next")
    data = groups["birch"].read(f"{id}_disk.data0")
    assert data.find(WRITTEN) == LAST
    assert data.count(0) == len(data) - len(WRITTEN)
    assert lvm_hosts.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.full
def test_a_server_that_is_off_moves_with_its_logical_volumes(lvm_hosts, micro_guest):
    """Into extents that are larger: the record has the sizes that they make."""
    groups = lvm_hosts.groups
    id = create(lvm_hosts, micro_guest)
    before = groups["alder"].read(f"{id}_disk")
    told = lvm_hosts.json("server", "migrate", "web", "--host", "birch")
    assert [each["way"] for each in told["disks"]] == ["copy"] * 3
    assert groups["birch"].read(f"{id}_disk") == before.ljust(8 * MiB, b"\0")
    check_only_on_birch(lvm_hosts, id)
    groups["alder"].clear()
    lvm_hosts.ok("server", "start", "web")
    wait_until_booted(lvm_hosts, "web")
    lvm_hosts.ok("server", "migrate", "web", "--host", "alder", "--stop", "--timeout", "60")
    wait_until_booted(lvm_hosts, "web", 2)
    assert groups["birch"].volumes() == {}


@pytest.mark.full
def test_a_copy_that_differs_is_found_and_the_server_stays(lvm_hosts, micro_guest):
    groups = lvm_hosts.groups
    id = create(lvm_hosts, micro_guest)
    before = groups["alder"].read(f"{id}_disk.data0")

    def spoil(*where):
        if where == ("migrate", "verify", StepMoment.BEGIN):
            with groups["birch"].path(f"{id}_disk.data0").open("r+b") as device:
                device.seek(8 * MiB)
                device.write(b"?")

    deployment = Deployment.load([lvm_hosts.config], spoil)
    with pytest.raises(HostProblem, match=r"disk\.data0 does not hold what was sent"):
        migrate(deployment, deployment.server("web"), MigrateRequest(host="birch"))
    assert groups["birch"].volumes() == {}
    assert groups["alder"].read(f"{id}_disk.data0") == before
    lvm_hosts.ok("server", "start", "web")


@pytest.mark.full
def test_killed_after_its_switch_its_old_volumes_are_removed(lvm_hosts, micro_guest):
    id = create(lvm_hosts, micro_guest)
    kill_at(lvm_hosts, "migrate", "remove", StepMoment.BEGIN, "migrate", "web", "birch")
    lvm_hosts.run("doctor", "--repair")
    check_only_on_birch(lvm_hosts, id)


@pytest.mark.full
def test_a_guest_that_writes_all_the_time_notices_nothing(lvm_hosts, busy_guest):
    """Both hosts have one log of its console."""
    id = create(lvm_hosts, busy_guest, "--disk", "8M")
    lvm_hosts.ok("server", "start", "web")
    guest = MovingGuest(lvm_hosts, id)
    guest.wait_for_ticks("alder", more=1)
    told = lvm_hosts.json("server", "migrate", "web", "--host", "birch", "--live")
    print(f"the longest pause: {told['pause']} s")
    guest.check_gapless("birch")
    check_only_on_birch(lvm_hosts, id)
    lvm_hosts.ok("server", "stop", "web", "--force")
    assert tick_on_disk(lvm_hosts, "web") in (last := guest.ticks("birch")[-1], last + 1)
    assert SOIL not in lvm_hosts.groups["birch"].read(f"{id}_disk")
    lvm_hosts.ok("server", "start", "web")
    lvm_hosts.ok("server", "delete", "web")
    assert lvm_hosts.groups["birch"].volumes() == {}


@pytest.mark.full
def test_qemu_would_not_mirror_into_larger_extents(lvm_hosts, busy_guest):
    id = create(lvm_hosts, busy_guest)
    lvm_hosts.ok("server", "start", "web")
    guest = MovingGuest(lvm_hosts, id)
    guest.wait_for_ticks("alder", more=1)
    status, message = lvm_hosts.fails("server", "migrate", "web", "--host", "birch", "--live")
    assert (status, "disk would have 8 MiB, and has 4 MiB" in message) == (2, True), message
    assert lvm_hosts.groups["birch"].volumes() == {}
    guest.check_gapless("alder")
