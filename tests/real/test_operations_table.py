"""docs/operations.md: every operation on every kind of root disk of directory pools."""

import contextlib

import pytest

from tests.real.test_host_volumes import device_of
from tests.support import operations
from tests.support.glance_pages import ID
from tests.support.linked import LinkingHosts, linked_host
from tests.support.multi_host import shared_there
from tests.support.operations import LIVE, OPERATIONS, Column

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
    assert not remote.host().probe_local_files()
    operations.add_image(remote, micro_guest, column, workdir)
    operations.create(remote, column, OPERATIONS[name])
    operations.walk(remote, column, OPERATIONS[name])


@pytest.mark.parametrize(("name", "column"), cells(*LOCAL, moves=True))
def test_the_cell_of_a_move_is_true(multi_host, busy_guest, workdir, move, name, column):
    """Between hosts whose files are local, which ploop needs."""
    own = multi_host.place_locally(mapped(column), shared=OPERATIONS[name].dead)
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
        there = remote_hosts.deployment().hosts.values()
        assert not any(each.probe_local_files() for each in there)
        operations.add_image(remote_hosts, busy_guest, column, workdir)
        move(remote_hosts, name, column, ["alder", "birch"])
        assert not dead or list(shared.iterdir()) == []
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
