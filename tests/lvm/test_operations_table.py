"""docs/operations.md: every operation on a root disk in a volume group."""

import pytest

from tests.support import operations
from tests.support.operations import OPERATIONS, Column


@pytest.mark.full
@pytest.mark.parametrize("name", operations.names(Column.LVM, moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, volume_group, name):
    group = f"images_volume_group = {volume_group.name}"
    millpond.configure(f"images_type = lvm\nimages_type_mapping = raw:lvm\n{group}")
    operations.add_image(millpond, micro_guest, Column.LVM, workdir)
    operations.create(millpond, Column.LVM, OPERATIONS[name])
    operations.walk(millpond, Column.LVM, OPERATIONS[name])
