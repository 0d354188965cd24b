"""docs/operations.md: every operation on a root disk in a Ceph cluster."""

import pytest

from tests.ceph.conftest import rbd_options, shared_pool
from tests.support import operations
from tests.support.operations import OPERATIONS, Column

BACKEND = "images_type = rbd\nimages_type_mapping = raw:rbd"


@pytest.mark.full
@pytest.mark.parametrize("name", operations.names(Column.RBD, moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, ceph, rbd_pool, name):
    options = "\n".join(rbd_options(ceph, rbd_pool))
    millpond.configure(f"{BACKEND}\n{options}")
    operations.add_image(millpond, micro_guest, Column.RBD, workdir)
    operations.create(millpond, Column.RBD, OPERATIONS[name])
    operations.walk(millpond, Column.RBD, OPERATIONS[name])


@pytest.mark.full
@pytest.mark.parametrize("name", operations.names(Column.RBD, moves=True))
def test_the_cell_of_a_move_is_true(multi_host, busy_guest, workdir, ceph, move, name):
    """A dead host has shared its config drive, too, which is never in Ceph."""
    dead = OPERATIONS[name].dead
    place = multi_host.directory / "shared" if dead else multi_host.place / "disks"
    with shared_pool(multi_host, ceph) as options:
        rest = f"disks_pool_path = {place}\n{BACKEND}"
        multi_host.configure({each: f"{rest}\n{own}" for each, own in options.items()})
        multi_host.ok("host", "list", "--refresh")
        operations.add_image(multi_host, busy_guest, Column.RBD, workdir)
        move(multi_host, name, Column.RBD, ["alder", "birch"])
