"""A host whose servers have logical volumes, and files next to them, is drained."""

import json

import pytest

from tests.ceph.test_drain import check_gapless, ticks, wait_for_second_boot
from tests.support.millpond import converted
from tests.support.operations import Column, check_pause
from tests.support.waiting import wait_for

# Machines within a machine, each of whose moves takes up to a minute.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

BACKENDS = "images_type = raw\nimages_type_mapping = raw:lvm, qcow2:qcow2"
SERVERS = {
    "lvm-off": ("raw", False, "8M"),
    "lvm-runs": ("raw", True, "8M"),
    "lvm-odd": ("raw", True, "4M"),
    "qcow2-runs": ("qcow2", True, "8M"),
    "raw-off": ("vdi", False, "8M"),
}
"""The image of each, whether it runs, and its root disk."""
COLUMNS = {"lvm-runs": Column.LVM, "qcow2-runs": Column.LVM}
"""Of the table of operations: all of its other pauses were measured outside of that machine."""
STAYS = "lvm-odd"
"""birch has extents of 8 MiB, and QEMU mirrors no disk into a larger one."""
SECONDS = 120
PATIENCE = 900


@pytest.fixture
def hosts(lvm_hosts, busy_guest, workdir):
    room = "cpu_allocation_ratio = 16\nram_allocation_ratio = 4\ndisk_allocation_ratio = 16"
    lvm_hosts.configure_backends(BACKENDS, default=room)
    lvm_hosts.ok("image", "add", busy_guest.path, "--name", "raw")
    for name in ("qcow2", "vdi"):
        path = converted(busy_guest, name, workdir)
        lvm_hosts.ok("image", "add", path, "--name", name, "--disk-format", name)
    return lvm_hosts


def create(hosts, name):
    """One that runs has written to its disk; one that is off has never run, which takes less."""
    image, runs, size = SERVERS[name]
    words = ("--image", image, "--disk", size, "--memory", "16M", "--network", "none")
    off = () if runs else ("--no-start",)
    hosts.ok("server", "create", name, *words, "--host", "alder", *off)
    if runs:
        wait_for(lambda: ticks(hosts, name), SECONDS)


def drain(hosts, *options):
    words = ("host", "drain", "alder", "--timeout", SECONDS, "--json", *options)
    done = hosts.run(*words, seconds=PATIENCE)
    assert done.stdout, done.stderr
    for row in (rows := json.loads(done.stdout)):
        print({key: row[key] for key in row if key != "server"})
    return done, {each["name"]: each for each in rows}


def test_servers_on_lvm_and_in_files_leave_for_another_volume_group(hosts):
    for name in sorted(SERVERS, key=lambda name: SERVERS[name][1]):
        create(hosts, name)
    roots = {each.name: each.get_disk().backend for each in hosts.deployment().records.all()}
    assert roots == {name: name.partition("-")[0] for name in SERVERS}
    done, rows = drain(hosts)
    assert (done.returncode, set(rows)) == (2, set(SERVERS)), done.stderr
    assert f"{STAYS} stays on alder" in " ".join(done.stderr.split())
    assert "disk would have 8 MiB, and has 4 MiB" in rows[STAYS]["error"]
    check_gapless(hosts, STAYS)
    for name in set(SERVERS) - {STAYS}:
        runs = SERVERS[name][1]
        assert (rows[name]["error"], rows[name]["host"]) == ("", "birch"), rows[name]
        assert hosts.where(name) == "birch"
        assert ("pause" in rows[name]) == runs
        if runs:
            check_pause(COLUMNS[name], rows[name]["pause"])
            check_gapless(hosts, name)

    done, rows = drain(hosts, "--stop")
    assert (done.returncode, set(rows), rows[STAYS]["host"]) == (0, {STAYS}, "birch"), done.stderr
    wait_for_second_boot(hosts, STAYS)
    assert hosts.groups["alder"].volumes() == {}
    assert not [each for each in (hosts.directory / "alder/disks").iterdir() if each.is_file()]
    assert not hosts.deployment().hosts["alder"].domains.names()
    states = {each["name"]: each["state"] for each in hosts.json("server", "list")}
    assert states == {
        name: "running" if runs else "stopped" for name, (_, runs, _) in SERVERS.items()
    }
    for name in (each for each, (_, runs, _) in SERVERS.items() if not runs):
        hosts.ok("server", "start", name)
        wait_for(lambda: ticks(hosts, name), SECONDS)  # noqa: B023
        hosts.ok("server", "stop", name, "--force")
    assert hosts.ok("doctor", "--placement").endswith("no problem\n")
    hosts.ok("server", "delete", *SERVERS, "--yes")
    assert hosts.groups["birch"].volumes() == {}
