"""docs/operations.md: every operation on a root disk in a volume group."""

import pytest

from millpond.model.formats import Backend
from tests.support import operations
from tests.support.operations import OPERATIONS, Column

pytestmark = pytest.mark.full  # guests within a guest are slow


@pytest.mark.parametrize("name", operations.names(Column.LVM, moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, volume_group, name):
    group = f"images_volume_group = {volume_group.name}"
    millpond.configure(f"images_type = lvm\nimages_type_mapping = raw:lvm\n{group}")
    operations.add_image(millpond, micro_guest, Column.LVM, workdir)
    operations.create(millpond, Column.LVM, OPERATIONS[name])
    operations.walk(millpond, Column.LVM, OPERATIONS[name])
    assert set(volume_group.volumes()) == set(recorded(millpond.host().shared.records))


def recorded(records):
    """Volumes of servers that are still there, such as clones."""
    disks = (disk for server in records.all() for disk in server.disks)
    return (disk.volume for disk in disks if disk.backend is Backend.LVM)


@pytest.mark.parametrize("name", operations.names(Column.LVM, moves=True))
def test_the_cell_of_a_move_is_true(lvm_hosts, micro_guest, workdir, move, name):
    """Between hosts with volume groups of their own. The one that is evacuated has lost its
    libvirtd alone, which is enough to be refused."""
    lvm_hosts.ok("host", "list", "--refresh")
    operations.add_image(lvm_hosts, micro_guest, Column.LVM, workdir)
    die, logs = lvm_hosts.hosts["alder"].kill, ["birch"]  # the log is one
    move(lvm_hosts, name, Column.LVM, logs, options=["--disk", "8M"], die=die)
