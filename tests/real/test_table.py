"""docs/formats.md: every image format on every backend of directory pools."""

import pytest

from millpond.model.formats import Backend
from tests.support.table import walk


@pytest.mark.parametrize("backend", [Backend.RAW, Backend.QCOW2, Backend.PLOOP])
def test_every_image_format_boots(millpond, micro_guest, backend):
    walk(millpond, micro_guest, backend)
