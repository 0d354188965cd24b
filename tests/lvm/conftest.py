"""LVM, which needs a kernel with device-mapper: these tests run in the nested machine."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lvm.volume_group import EXTENT, VolumeGroup, group_in_file, make_volume_group
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.multi_host import MultiHost

# Named by tools/nested/run, and by nobody else: the disk is overwritten.
_DISK = "MILLPOND_NESTED_DISK"

# In /run: udev's database and socket, and the locks and hints of LVM.
_OF_THE_MACHINE = ("udev", "lock", "lvm")

EXTENTS = {"alder": EXTENT, "birch": 2 * EXTENT}
"""Of the groups of two hosts."""

_ELSEWHERE = pytest.mark.skip(
    reason="LVM is tested in a nested machine with a kernel of its own: make test-lvm"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LvmHosts(MultiHost):
    """A live migration takes longer than a minute where each guest is one within a guest."""

    groups: Mapping[str, VolumeGroup]

    def configure_backends(self, backends: str, default: str = "") -> None:
        """Each host has a volume group and directories of its own."""
        own = {}
        for name, group in self.groups.items():
            place = self.directory / name
            place.mkdir(mode=0o755, exist_ok=True)
            paths = f"base_images_pool_path = {place}/base\ndisks_pool_path = {place}/disks"
            own[name] = f"{paths}\n{backends}\nimages_volume_group = {group.name}"
        instances = f"instances_path = {self.directory}/instances"
        self.configure(own, default=f"{instances}\n{default}", enabled=[*own])

    def run(self, *words: object, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        return MultiHost.run(self, *words, seconds=seconds)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _DISK in os.environ:
        return
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(_ELSEWHERE)


@pytest.fixture(scope="session")
def libvirtd(libvirtd: PrivateLibvirtd) -> PrivateLibvirtd:
    """The private libvirtd, on the machine's own devices."""
    give_devices(libvirtd)
    return libvirtd


def give_devices(libvirtd: PrivateLibvirtd) -> None:
    """udev makes the nodes of logical volumes there, libvirt changes their owner, and both libvirt
    and we call LVM."""
    libvirtd.run("umount", "--recursive", "/dev")
    for name in _OF_THE_MACHINE:
        theirs, ours = Path("/run", name), libvirtd.directory / "run" / name
        theirs.mkdir(exist_ok=True)
        ours.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", str(theirs), str(ours)], check=True)


@pytest.fixture(scope="session")
def _volume_group() -> VolumeGroup:
    return make_volume_group("millpond", Path(os.environ[_DISK]))


@pytest.fixture
def volume_group(_volume_group: VolumeGroup, libvirtd: PrivateLibvirtd) -> Iterator[VolumeGroup]:
    """The same group for every test, without a volume in it."""
    yield _volume_group
    libvirtd.clear()  # guests and pools first: a volume in use cannot be removed
    _volume_group.clear()


@pytest.fixture(scope="session")
def host_daemons(session_directory: Path) -> Iterator[Mapping[str, PrivateLibvirtd]]:
    """Two hosts on the devices of one machine. They do not lose their power: what is mounted in
    their /run is the machine's."""
    with ExitStack() as stack:
        daemons = {
            name: stack.enter_context(PrivateLibvirtd(session_directory / name, name=name))
            for name in EXTENTS
        }
        for each in daemons.values():
            give_devices(each)
        yield daemons


@pytest.fixture(scope="session")
def _host_groups(session_directory: Path) -> Iterator[Mapping[str, VolumeGroup]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                group_in_file(f"group-{name}", session_directory / f"{name}.raw", extent)
            )
            for name, extent in EXTENTS.items()
        }


@pytest.fixture
def lvm_hosts(
    multi_host: MultiHost, _host_groups: Mapping[str, VolumeGroup]
) -> Iterator[LvmHosts]:
    """Each with a group of its own, without a volume in it; their files are local."""
    made = LvmHosts(
        directory=multi_host.directory,
        uri="",
        hosts=multi_host.hosts,
        place=multi_host.place,
        groups=_host_groups,
    )
    made.configure_backends("images_type = lvm\nimages_type_mapping = raw:lvm")
    yield made
    for each in made.hosts.values():
        each.clear()
    for group in _host_groups.values():
        group.clear()
