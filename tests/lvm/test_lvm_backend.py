"""The backend of logical pools: the contract of every backend."""

import pytest

from millpond.model.formats import Backend
from tests.contract.backend import BackendContract, configure
from tests.support.millpond import Millpond


class TestLvm(BackendContract):
    backend = Backend.LVM

    @pytest.fixture
    def configured(self, millpond, micro_guest, volume_group) -> Millpond:
        group = f"images_volume_group = {volume_group.name}"
        return configure(millpond, micro_guest.path, "images_type = lvm", group)
