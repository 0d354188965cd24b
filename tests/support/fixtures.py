"""The real things that tests ask for by name; each is started by the first test that asks.

A plugin (tests/conftest.py), so that all directories of tests share one session and its libvirtd.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from tests.support import ceph as ceph_support
from tests.support import session
from tests.support.ceph import Ceph
from tests.support.guests import MicroGuest, build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd, reason_to_skip
from tests.support.loopfs import (
    DEFAULT_SIZE,
    FilesystemKind,
    LoopFilesystem,
    MakeFilesystem,
    loop_filesystem,
)
from tests.support.millpond import Millpond


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("MILLPOND_TEST_FULL"):
        return
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason="one of the long matrices: make test-full"))


@pytest.fixture(scope="session")
def session_directory() -> Iterator[Path]:
    """The directory beneath which everything of this session lies."""
    if reason := session.reason_to_skip():
        pytest.skip(reason)
    with session.session_directory() as path:
        yield path


@pytest.fixture(scope="session")
def libvirtd(session_directory: Path) -> Iterator[PrivateLibvirtd]:
    """One private libvirtd for the session; after each test that used it, it is empty again."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with PrivateLibvirtd(session_directory / "libvirtd") as daemon:
        yield daemon


@pytest.fixture
def connection(libvirtd: PrivateLibvirtd) -> Iterator[libvirt.virConnect]:
    with libvirtd.connect() as opened:
        yield opened


@pytest.fixture
def workdir(session_directory: Path) -> Iterator[Path]:
    """A fresh directory that QEMU's user can enter, by the same path for us and for libvirtd."""
    path = Path(tempfile.mkdtemp(prefix="work-", dir=session_directory))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def make_filesystem(workdir: Path) -> Iterator[MakeFilesystem]:
    """make_filesystem(kind, size): mounted in the workdir, gone after the test."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as stack:

        def make(kind: FilesystemKind, size: int = DEFAULT_SIZE) -> LoopFilesystem:
            where = workdir / f"{kind}-{next(numbers)}"
            return stack.enter_context(loop_filesystem(kind, size, where))

        yield make


@pytest.fixture(autouse=True)
def _cleared_libvirtd(request: pytest.FixtureRequest) -> Iterator[None]:
    # It asks for the file systems so that guests end before these are unmounted under them.
    if "libvirtd" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("make_filesystem")
    daemon: PrivateLibvirtd = request.getfixturevalue("libvirtd")
    yield
    daemon.clear()


@pytest.fixture(scope="session")
def micro_guest(session_directory: Path) -> MicroGuest:
    """Do not boot it: copy it, or make overlays of it."""
    return build_micro_guest(session_directory / "micro.raw", marker="MILLPOND")


@pytest.fixture(scope="session")
def busy_guest(session_directory: Path) -> MicroGuest:
    """It writes 18 times a second."""
    return build_micro_guest(session_directory / "busy.raw", marker="BUSY", clock=1)


@pytest.fixture(scope="session")
def ceph(session_directory: Path) -> Iterator[Ceph]:
    """One cluster for the session; a test that stopped it leaves it running for the next."""
    if reason := ceph_support.reason_to_skip():
        pytest.skip(reason)
    with Ceph(session_directory / "ceph") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _restarted_ceph(request: pytest.FixtureRequest) -> Iterator[None]:
    # Before libvirtd is cleared, which would wait for a cluster that does not answer.
    request.getfixturevalue("_cleared_libvirtd")
    yield
    if "ceph" in request.fixturenames:
        request.getfixturevalue("ceph").start()


@pytest.fixture
def millpond(libvirtd: PrivateLibvirtd, workdir: Path) -> Millpond:
    """A fresh state directory on the private libvirtd."""
    made = Millpond(directory=workdir, uri=libvirtd.uri)
    made.configure()
    return made


@pytest.fixture(scope="session")
def linux_guest() -> Path:
    """The small Linux that ``make guests`` builds. Do not boot it: add it as an image."""
    return _built("linux.raw")


@pytest.fixture(scope="session")
def cloud_image() -> Path:
    """A Debian cloud image; next to it its file system, as root.tar.gz."""
    if os.geteuid() or shutil.which("mmdebstrap") is None:
        pytest.skip("it is built by mmdebstrap, as root: tools/setup nested-packages")
    builder = Path(__file__).parents[2] / "tools/guests/build-cloud"
    done = subprocess.run([builder], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip()) / "cloud.qcow2"


@pytest.fixture(scope="session")
def linux_ami() -> Path:
    """The same without a boot loader: a file system, and next to it linux.aki and linux.ari."""
    _built("linux.aki")
    _built("linux.ari")
    return _built("linux.ami")


def _built(name: str) -> Path:
    cache = os.environ.get("MILLPOND_CACHE", str(Path.home() / ".cache" / "millpond"))
    path = Path(cache) / "guests" / name
    if not path.exists():
        pytest.skip(f"{path} is not there: make guests")
    return path
