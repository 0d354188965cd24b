"""docs/formats.md: every image format in a Ceph cluster."""

from millpond.model.formats import Backend
from tests.ceph.conftest import rbd_options
from tests.support.table import walk


def test_every_image_format_boots(millpond, micro_guest, ceph, rbd_pool):
    walk(millpond, micro_guest, Backend.RBD, *rbd_options(ceph, rbd_pool))
