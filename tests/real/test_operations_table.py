"""docs/operations.md: every operation on every kind of root disk of directory pools."""

import contextlib
import json

import pytest

from tests.real.test_host_volumes import device_of
from tests.support import operations
from tests.support.glance_pages import ID
from tests.support.guest_ticks import MovingGuest
from tests.support.linked import linked_host
from tests.support.multi_host import shared_there
from tests.support.operations import LIVE, OPERATIONS, PASSES, Column

ALWAYS = {
    ("resize, revert", Column.RAW),
    ("snapshot of one that runs", Column.PLOOP),
    ("migrate", Column.UEFI),
    (LIVE, Column.DISKS),
}
"""The rest is one of the long matrices."""
BACKENDS = {Column.RAW: "raw", Column.PLOOP: "ploop"}
LOCAL = (Column.QCOW2, Column.RAW, Column.PLOOP, Column.UEFI, Column.DISKS)


def cells(*columns, moves):
    return [
        pytest.param(
            *(name, column),
            id=f"{name}-{column}",
            marks=[] if (name, column) in ALWAYS else [pytest.mark.full],
        )
        for column in columns
        for name in operations.names(column, moves=moves)
        if (name, column) not in operations.WITH_GLANCE
    ]


def mapped(column):
    backend = BACKENDS.get(column, "qcow2")
    return f"images_type = {backend}\nimages_type_mapping = raw:{backend}"


@pytest.mark.parametrize(("name", "column"), cells(*LOCAL, moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, name, column):
    millpond.configure(mapped(column))
    operations.add_image(millpond, micro_guest, column, workdir)
    operations.create(millpond, column, OPERATIONS[name])
    operations.walk(millpond, column, OPERATIONS[name])


@pytest.mark.parametrize(("name", "column"), cells(Column.REMOTE, moves=False))
def test_the_cell_of_a_remote_host_is_true(remote, micro_guest, workdir, name, column):
    remote.configure(mapped(column))
    operations.add_image(remote, micro_guest, column, workdir)
    operations.create(remote, column, OPERATIONS[name])
    operations.walk(remote, column, OPERATIONS[name])


@pytest.fixture
def move(busy_guest, workdir, pytestconfig):
    """Walks the cell of a move; its guest writes all the time. ``logs``: hosts whose logs are what
    it printed."""

    def move(hosts, name, column, logs, **image):
        operation = OPERATIONS[name]
        operations.create(hosts, column, operation, "--host", "alder", **image)
        if name != LIVE or operation.cell(column) != PASSES:
            operations.walk(hosts, column, operation, hosts.hosts["alder"].lose_power)
            return
        guest = MovingGuest(hosts, hosts.deployment().server(operations.NAME).id)
        guest.wait_for_ticks("alder")

        def look(printed):
            guest.check_gapless(*logs)
            if pytestconfig.getoption("--regenerate"):
                operations.keep_pause(column, json.loads(printed)["pause"])

        operations.walk(hosts, column, operation, look=look)

    return move


def place_pools(hosts, dead, disks):
    """Directories that can be opened here, one for each host; if its host is to die, they share
    that of the disks."""
    own = {}
    for each in hosts.hosts:
        place = hosts.directory / each
        place.mkdir(mode=0o755)
        path = hosts.directory / "shared" if dead else place / "disks"
        own[each] = f"base_images_pool_path = {place}/base\ndisks_pool_path = {path}\n{disks}"
    return own


@pytest.mark.parametrize(("name", "column"), cells(*LOCAL, moves=True))
def test_the_cell_of_a_move_is_true(multi_host, busy_guest, workdir, move, name, column):
    """Between hosts whose files are local, which ploop needs."""
    own = place_pools(multi_host, OPERATIONS[name].dead, mapped(column))
    multi_host.configure(own, default=f"instances_path = {multi_host.directory}/instances")
    multi_host.ok("host", "list", "--refresh")
    operations.add_image(multi_host, busy_guest, column, workdir)
    move(multi_host, name, column, ["birch"])  # the log is one


@pytest.mark.parametrize(("name", "column"), cells(Column.REMOTE, moves=True))
def test_the_cell_of_a_move_between_remote_hosts_is_true(
    remote_hosts, busy_guest, workdir, move, name, column
):
    shared = remote_hosts.directory / "shared"
    dead = OPERATIONS[name].dead
    own = {
        each: f"migration_uri = tcp://{host.address}\n{mapped(column)}"
        + (f"\ndisks_pool_path = {shared}/disks" if dead else "")
        for each, host in remote_hosts.hosts.items()
    }
    with shared_there(shared) if dead else contextlib.nullcontext():
        remote_hosts.configure(own, enabled=[*own])
        remote_hosts.ok("host", "list", "--refresh")
        operations.add_image(remote_hosts, busy_guest, column, workdir)
        move(remote_hosts, name, column, ["alder", "birch"])
        for host in remote_hosts.hosts.values():
            host.clear()


@pytest.fixture
def volume(busy_guest, workdir, monkeypatch):
    """The image in a volume that hosts reach as a device, and how they do."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    content = busy_guest.path.read_bytes()
    (workdir / "volume").write_bytes(content)
    with device_of(workdir / "volume", workdir / "device"):
        connection = {"driver_volume_type": "local", "device_path": str(workdir / "device")}
        yield content, connection


@pytest.mark.parametrize(("name", "column"), cells(Column.LINKED, moves=False))
def test_the_cell_of_a_linked_template_is_true(millpond, volume, name, column):
    with linked_host(millpond, *volume) as host:
        operations.create(millpond, column, OPERATIONS[name], image=ID)
        assert host.templates()
        operations.walk(millpond, column, OPERATIONS[name])
        millpond.ok("cache", "prune", "--all-unused")


class LinkingHosts:
    """Several, of which all files can be opened here, as linked_host() asks for one."""

    def __init__(self, hosts, dead):
        self.hosts, self.dead = hosts, dead

    def configure(self, libvirt, default):
        default = f"{default}\ninstances_path = {self.hosts.directory}/instances"
        own = place_pools(self.hosts, self.dead, "")
        self.hosts.configure(own, default=default, rest=f"[libvirt]\n{libvirt}")


@pytest.mark.parametrize(("name", "column"), cells(Column.LINKED, moves=True))
def test_the_cell_of_a_move_of_a_linked_template_is_true(multi_host, volume, move, name, column):
    dead = OPERATIONS[name].dead
    with linked_host(LinkingHosts(multi_host, dead), *volume) as linked:
        multi_host.ok("host", "list", "--refresh")
        move(multi_host, name, column, ["birch"], image=ID)
        (template,) = multi_host.json("cache", "list", "--host", "birch")["templates"]
        assert template["template"]["prepared"] == "link"
        for host in ("birch",) if dead else ("alder", "birch"):
            multi_host.ok("cache", "prune", "--all-unused", "--host", host)
        assert len(linked.cinder.attachments) == dead  # nobody could ask that host to detach it
