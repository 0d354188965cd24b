"""The backends of directory pools: the contract of every backend."""

import pytest

from millpond.model.formats import Backend
from tests.contract.backend import BackendContract, configure
from tests.support.millpond import Millpond


class TestRaw(BackendContract):
    backend = Backend.RAW

    @pytest.fixture
    def configured(self, millpond, micro_guest) -> Millpond:
        return configure(millpond, micro_guest.path, "images_type = raw")


class TestQcow2(BackendContract):
    backend = Backend.QCOW2

    @pytest.fixture
    def configured(self, millpond, micro_guest) -> Millpond:
        return configure(millpond, micro_guest.path, "images_type = qcow2")


class TestPloop(BackendContract):
    backend = Backend.PLOOP
    grows_while_running = False

    @pytest.fixture
    def configured(self, millpond, micro_guest) -> Millpond:
        return configure(millpond, micro_guest.path, "images_type = ploop")
