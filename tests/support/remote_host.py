"""A host whose files cannot be opened here: its pools lie on a file system that is mounted in its
own namespace and nowhere else. A plugin (tests/conftest.py)."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from millpond.errors import NoConsole
from millpond.model.names import ServerId
from tests.support.libvirtd import PrivateLibvirtd, reason_to_skip
from tests.support.millpond import Millpond

_SIZE = "2g"
"""Of a file system in memory, of which nothing is taken that is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMillpond(Millpond):
    """A state directory here, for one host that is elsewhere."""

    libvirtd: PrivateLibvirtd
    place: Path
    """Of the host's pools, on the host."""

    @property
    def disks(self) -> Path:
        return self.place / "instances" / "disks"

    @property
    def bases(self) -> Path:
        return self.place / "instances" / "_base"

    def configure(self, libvirt: str = "", default: str = "") -> None:
        place = f"instances_path = {self.place}/instances"
        Millpond.configure(self, libvirt, "\n".join([place, default]))

    def console(self, id: ServerId | str) -> str:
        with contextlib.suppress(NoConsole):
            found = self.host().consoles.read(ServerId(id), "it")
            return found.decode(errors="replace")
        return ""

    def files(self, directory: Path | None = None) -> list[str]:
        """On the host: all, or those in one directory, but for the mark of whose cache it is."""
        listed = self.libvirtd.run("find", str(self.place), "-type", "f").stdout.splitlines()
        beneath = [Path(each) for each in listed if Path(each).is_relative_to(directory or "/")]
        return sorted(each.name for each in beneath if each.suffix != ".mark")


@pytest.fixture(scope="session")
def remote_libvirtd(session_directory: Path) -> Iterator[PrivateLibvirtd]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    number = os.getpid() % 250 + 1  # another run of the tests may be under way
    network = (f"millpond{number}", f"10.77.{number}.2/24")
    with PrivateLibvirtd(session_directory / "remote", name="remote", network=network) as daemon:
        yield daemon


@pytest.fixture
def remote(remote_libvirtd: PrivateLibvirtd, session_directory: Path) -> Iterator[RemoteMillpond]:
    """A fresh state directory, a fresh file system of the host, reached by TCP."""
    here = Path(tempfile.mkdtemp(prefix="remote-", dir=session_directory))
    here.chmod(0o755)
    place = here / "there"
    place.mkdir()
    remote_libvirtd.run(
        "mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0755", "remote", str(place)
    )
    made = RemoteMillpond(
        directory=here, uri=remote_libvirtd.tcp_uri, libvirtd=remote_libvirtd, place=place
    )
    made.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    try:
        yield made
    finally:
        remote_libvirtd.clear()
        remote_libvirtd.run("umount", "--lazy", str(place))
        shutil.rmtree(here)
