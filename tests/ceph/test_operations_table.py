"""docs/operations.md: every operation on a root disk in a Ceph cluster."""

import pytest

from tests.ceph.conftest import rbd_options
from tests.support import operations
from tests.support.operations import OPERATIONS, Column


@pytest.mark.full
@pytest.mark.parametrize("name", operations.names(Column.RBD, moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, ceph, rbd_pool, name):
    options = "\n".join(rbd_options(ceph, rbd_pool))
    millpond.configure(f"images_type = rbd\nimages_type_mapping = raw:rbd\n{options}")
    operations.add_image(millpond, micro_guest, Column.RBD, workdir)
    operations.create(millpond, Column.RBD, OPERATIONS[name])
    operations.walk(millpond, Column.RBD, OPERATIONS[name])
