"""A host with servers of every backend is drained."""

import json
import re
from contextlib import suppress

import pytest

from millpond.errors import NoConsole
from millpond.model.sizes import MiB
from tests.ceph.conftest import shared_pool
from tests.support.millpond import converted
from tests.support.operations import Column, check_pause
from tests.support.waiting import wait_for

BACKENDS = "images_type = raw\nimages_type_mapping = raw:rbd, qcow2:qcow2, ploop:ploop"
SERVERS = {
    "rbd-off": ("raw", False),
    "rbd-runs": ("raw", True),
    "rbd-data": ("raw", True),
    "qcow2-off": ("qcow2", False),
    "qcow2-runs": ("qcow2", True),
    "raw-off": ("vdi", False),
    "raw-runs": ("vdi", True),
    "raw-data": ("vdi", False),
    "ploop-off": ("ploop", False),
    "ploop-runs": ("ploop", True),
}
"""The image of each, and whether it runs."""
COLUMNS = {"raw": Column.RBD, "qcow2": Column.QCOW2, "vdi": Column.RAW}
"""Of the table of operations, by the images of those that run."""
STAYS = "ploop-runs"
PATIENCE = 400
"""Seconds; it takes a tenth of them."""


@pytest.fixture
def hosts(multi_host, ceph, busy_guest, workdir):
    """They share a cluster, and nothing else; their files are local, which ploop needs."""
    with shared_pool(multi_host, ceph) as options:
        own = {}
        for name, each in options.items():
            place = multi_host.directory / name
            place.mkdir(mode=0o755)
            paths = f"base_images_pool_path = {place}/base\ndisks_pool_path = {place}/disks"
            own[name] = f"{paths}\n{BACKENDS}\n{each}"
        common = f"instances_path = {multi_host.directory}/instances\ncpu_allocation_ratio = 16"
        multi_host.configure(own, default=common)
        multi_host.ok("host", "list", "--refresh")
        multi_host.ok("image", "add", busy_guest.path, "--name", "raw")
        for name, format in (("qcow2", "qcow2"), ("vdi", "vdi"), ("ploop", "parallels")):
            path = converted(busy_guest, format, workdir)
            multi_host.ok("image", "add", path, "--name", name, "--disk-format", name)
        yield multi_host


def console(hosts, name):
    host, server = hosts.deployment().find(name)
    with suppress(NoConsole):  # nothing yet
        return host.consoles.read(server.id, name).decode(errors="replace")
    return ""


def ticks(hosts, name):
    return [int(each, 16) for each in re.findall(r"TICK ([0-9A-F]{4})\s", console(hosts, name))]


def wait_for_second_boot(hosts, name):
    """It counts them on its own disk."""
    wait_for(lambda: "BOOTS 0002" in console(hosts, name), 60)


def create(hosts, name):
    """It has written to its disk."""
    image, runs = SERVERS[name]
    words = ("--image", image, "--memory", "16M", "--host", "alder", "--config-drive")
    hosts.ok("server", "create", name, *words)
    wait_for(lambda: ticks(hosts, name), 60)
    if "data" in name:
        for size in ("16M", "32M"):
            hosts.ok("server", "disk", "add", name, "--size", size)
    if not runs:
        hosts.ok("server", "stop", name, "--force")


def drain(hosts, *options):
    done = hosts.run(
        "host", "drain", "alder", "--timeout", "60", "--json", *options, seconds=PATIENCE
    )
    for row in (rows := json.loads(done.stdout)):
        print({key: row[key] for key in row if key != "server"})
    return done, {each["name"]: each for each in rows}


def check_gapless(hosts, name):
    """It still ticks, and has left no number out."""
    end = len(ticks(hosts, name)) + 10
    wait_for(lambda: len(ticks(hosts, name)) >= end, 60)
    found = ticks(hosts, name)
    assert found == list(range(1, len(found) + 1))


@pytest.mark.full
@pytest.mark.timeout(2 * PATIENCE)
def test_ten_servers_of_every_backend_leave(hosts):
    for name in SERVERS:
        create(hosts, name)
    assert {str(each.get_disk().backend) for each in hosts.deployment().records.all()} == {
        *("rbd", "qcow2", "raw", "ploop")
    }
    done, rows = drain(hosts)
    assert (done.returncode, set(rows)) == (6, set(SERVERS)), done.stderr
    said = " ".join(done.stderr.split())
    assert f"{STAYS} stays on alder" in said
    assert "QEMU migrates no guest that has a ploop disk, as disk is" in rows[STAYS]["error"]
    assert (rows[STAYS]["host"], hosts.where(STAYS)) == ("alder", "alder")
    for name, row in rows.items():
        _, runs = SERVERS[name]
        if name == STAYS:
            continue
        assert (row["error"], row["host"] in ("birch", "cedar")) == ("", True), row
        assert hosts.where(name) == row["host"]
        assert ("pause" in row, "off" in row) == (runs, False)
        if runs:
            check_pause(COLUMNS[SERVERS[name][0]], row["pause"])
            check_gapless(hosts, name)
    assert rows["rbd-off"]["bytes"] <= MiB  # its config drive
    check_gapless(hosts, STAYS)

    done, rows = drain(hosts, "--stop")
    assert (done.returncode, set(rows)) == (0, {STAYS}), done.stderr
    assert rows[STAYS]["host"] in ("birch", "cedar")
    assert 0 < rows[STAYS]["off"] < 60
    wait_for_second_boot(hosts, STAYS)
    assert not hosts.deployment().hosts["alder"].domains.names()
    assert not [each for each in (hosts.directory / "alder" / "disks").iterdir() if each.is_file()]
    states = {each["name"]: each["state"] for each in hosts.json("server", "list")}
    assert states == {
        name: "running" if runs else "stopped" for name, (_, runs) in SERVERS.items()
    }
    for name in (each for each, (_, runs) in SERVERS.items() if not runs):
        hosts.ok("server", "start", name)
        wait_for_second_boot(hosts, name)
    assert hosts.ok("doctor", "--placement").endswith("no problem\n")
    assert hosts.taken_by() == {each.id for each in hosts.deployment().records.all()}
    hosts.ok("server", "delete", *SERVERS, "--yes")
