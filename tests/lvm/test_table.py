"""docs/formats.md: every image format in a volume group."""

import pytest

from millpond.model.formats import Backend
from tests.support.table import walk


@pytest.mark.full  # nine guests within a guest
def test_every_image_format_boots(millpond, micro_guest, volume_group):
    walk(millpond, micro_guest, Backend.LVM, f"images_volume_group = {volume_group.name}")
