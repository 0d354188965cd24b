"""One cloud for the session, started by the first test that asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.environment import reason_to_skip


@pytest.fixture(scope="session")
def cloud(session_directory: Path) -> Iterator[Cloud]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    with (
        PrivateLibvirtd(session_directory / "nova-libvirtd", name="weir") as libvirtd,
        Cloud(session_directory / "cloud", libvirtd, {}) as started,
    ):
        yield started
