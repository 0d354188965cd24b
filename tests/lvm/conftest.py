"""LVM, which needs a kernel with device-mapper: these tests run in the nested machine."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lvm.volume_group import VolumeGroup, make_volume_group
from tests.support.libvirtd import PrivateLibvirtd

# Named by tools/nested/run, and by nobody else: the disk is overwritten.
_DISK = "MILLPOND_NESTED_DISK"

# In /run: udev's database and socket, and the locks and hints of LVM.
_OF_THE_MACHINE = ("udev", "lock", "lvm")

_ELSEWHERE = pytest.mark.skip(
    reason="LVM is tested in a nested machine with a kernel of its own: make test-lvm"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _DISK in os.environ:
        return
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(_ELSEWHERE)


@pytest.fixture(scope="session")
def libvirtd(libvirtd: PrivateLibvirtd) -> PrivateLibvirtd:
    """The private libvirtd, on the machine's own devices: udev makes the nodes of logical volumes
    there, libvirt changes their owner, and both libvirt and we call LVM."""
    libvirtd.run("umount", "--recursive", "/dev")
    for name in _OF_THE_MACHINE:
        theirs, ours = Path("/run", name), libvirtd.directory / "run" / name
        theirs.mkdir(exist_ok=True)
        ours.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", str(theirs), str(ours)], check=True)
    return libvirtd


@pytest.fixture(scope="session")
def _volume_group() -> VolumeGroup:
    return make_volume_group("millpond", Path(os.environ[_DISK]))


@pytest.fixture
def volume_group(_volume_group: VolumeGroup, libvirtd: PrivateLibvirtd) -> Iterator[VolumeGroup]:
    """The same group for every test, without a volume in it."""
    yield _volume_group
    libvirtd.clear()  # guests and pools first: a volume in use cannot be removed
    _volume_group.clear()
