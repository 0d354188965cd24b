"""docs/formats.md: every image format in a volume group."""

import pytest

from millpond.model.formats import Backend
from tests.support.table import column, walk


@pytest.mark.full
@pytest.mark.parametrize("format", column(Backend.LVM))  # several guests within a guest are slow
def test_an_image_of_this_format_boots(millpond, micro_guest, volume_group, format):
    group = f"images_volume_group = {volume_group.name}"
    walk(millpond, micro_guest, Backend.LVM, group, formats=[format])
