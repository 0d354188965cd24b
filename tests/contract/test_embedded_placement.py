"""Placement in this process."""

import pytest

from millpond.scheduling.embedded import EmbeddedPlacement
from tests.contract.placement import PlacementContract


class TestEmbeddedPlacement(PlacementContract):
    @pytest.fixture
    def door(self, tmp_path):
        return EmbeddedPlacement(tmp_path / "placement")
