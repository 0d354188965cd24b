"""The backend of RBD pools: the contract of every backend."""

import pytest

from millpond.model.formats import Backend
from tests.ceph.conftest import rbd_options
from tests.contract.backend import BackendContract, configure
from tests.support.millpond import Millpond


class TestRbd(BackendContract):
    backend = Backend.RBD

    @pytest.fixture
    def configured(self, millpond, micro_guest, ceph, rbd_pool) -> Millpond:
        options = rbd_options(ceph, rbd_pool)
        return configure(millpond, micro_guest.path, "images_type = rbd", *options)
