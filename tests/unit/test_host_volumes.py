"""Names in the base pool, who may read what they lead to, and os-brick's errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.errors import VolumeNotConnected
from millpond.model.cloud import CloudAccess, LinkAccess
from millpond.model.layer import FileSource
from millpond.model.transfer import Patience
from millpond.system import acl
from millpond.templates.links.host_volumes import HostVolumes

SOMEBODY = 4711
ROOT = Path(__file__).parents[2]


def volumes_in(directory: Path, *, own_process: bool = True) -> HostVolumes:
    cinder = CloudAccess(
        cloud="",
        auth_type="none",
        auth={},
        endpoint_override="",
        region_name="",
        cafile="",
        insecure=False,
        patience=Patience(connect_seconds=1, read_seconds=1, retries=0),
    )
    (directory / "bases").mkdir()
    access = LinkAccess(
        host="pond",
        initiator="",
        owner=lambda: "me",
        cinder=cinder,
        ceph=None,
        bases=directory / "bases",
        state=directory,
        reader=lambda: SOMEBODY,
        own_process=own_process,
    )
    return HostVolumes(access)


@pytest.fixture
def volumes(tmp_path: Path) -> HostVolumes:
    return volumes_in(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> FileSource:
    path = tmp_path / "volume"
    path.write_text("content")
    path.chmod(0o644)
    return FileSource(path=str(path))


def test_a_volume_has_a_name_that_stays_when_its_place_does_not(
    volumes: HostVolumes, file: FileSource, tmp_path: Path
) -> None:
    named = volumes.enter("template", file)
    assert named == FileSource(path=str(tmp_path / "bases/template"))
    assert volumes.is_reachable(named)
    moved = Path(file.path).rename(tmp_path / "moved")
    assert not volumes.is_reachable(named)
    assert volumes.enter("template", FileSource(path=str(moved))) == named
    assert (volumes.is_reachable(named), Path(named.path).read_text()) == (True, "content")
    volumes.release("template")
    assert (list((tmp_path / "bases").iterdir()), moved.read_text()) == ([], "content")
    volumes.release("template")


def test_only_a_link_is_ever_removed(volumes: HostVolumes, tmp_path: Path) -> None:
    (tmp_path / "bases/template").write_text("downloaded")
    volumes.release("template")
    assert (tmp_path / "bases/template").read_text() == "downloaded"


def test_a_file_that_qemu_may_not_read_is_not_linked(
    volumes: HostVolumes, file: FileSource, tmp_path: Path
) -> None:
    Path(file.path).chmod(0o660)
    with pytest.raises(VolumeNotConnected, match="may not read"):
        volumes.enter("template", file)
    assert list((tmp_path / "bases").iterdir()) == []


def test_one_more_may_read_and_nobody_more_may_write(tmp_path: Path) -> None:
    path = tmp_path / "device"
    path.touch(0o600)
    assert not acl.lets_read(path, SOMEBODY)
    acl.let_read(path, SOMEBODY)
    acl.let_read(path, SOMEBODY + 1)
    acl.let_read(path, SOMEBODY)
    assert acl.lets_read(path, SOMEBODY)
    assert acl.lets_read(path, SOMEBODY + 1)
    assert not acl.lets_read(path, SOMEBODY + 2)
    path.chmod(0o660)  # as udev does
    assert acl.lets_read(path, SOMEBODY)
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else: sudo")
def test_the_kernel_reads_the_list_as_we_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    path = tmp_path / "device"
    path.write_text("content")
    path.chmod(0o600)
    acl.let_read(path, SOMEBODY)

    def opens(uid: int, how: str) -> bool:
        code = f"open({str(path)!r}, {how!r})"
        words = ["setpriv", f"--reuid={uid}", "--clear-groups", "--", sys.executable, "-c", code]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    assert [opens(SOMEBODY, "r"), opens(SOMEBODY, "a"), opens(SOMEBODY + 1, "r")] == [
        True,
        False,
        False,
    ]


def test_an_error_of_os_brick_is_one_line_without_the_password(volumes: HostVolumes) -> None:
    nowhere = {"driver_volume_type": "local", "device_path": "/dev/nowhere"}
    with pytest.raises(VolumeNotConnected, match="/dev/nowhere"):
        volumes.connect("template", nowhere)
    secret = "device_path"  # a word of the message
    with pytest.raises(VolumeNotConnected, match=r"no \*\*\* attribute") as caught:
        volumes.connect("template", {"driver_volume_type": "local", "auth_password": secret})
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


def test_few_commands_load_os_brick() -> None:
    """It takes longer than most of them."""
    modules = "sys, millpond.hosts.host, millpond.templates.links.linking"
    code = f"import {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "os_brick" not in done.stdout.split()


_ASK = """
import contextlib, logging, pathlib, sys
from millpond.errors import VolumeNotConnected
from tests.unit.test_host_volumes import volumes_in
volumes = volumes_in(pathlib.Path(sys.argv[1]), own_process=sys.argv[2] == "ours")
with contextlib.suppress(VolumeNotConnected):
    volumes.connect("template", {"driver_volume_type": "local", "device_path": "/dev/nowhere"})
from os_brick import privileged
silent = logging.getLogger("os_brick").level == logging.CRITICAL
print(privileged.default.client_mode, sys.modules.get("eventlet", "") is None, silent)
"""


@pytest.mark.parametrize(
    ("whose", "seen"), [("ours", "False True True"), ("nova's", "True False False")]
)
def test_the_settings_of_another_program_are_left_alone(
    tmp_path: Path, whose: str, seen: str
) -> None:
    """Whether a helper has the privileges, whether there is eventlet, and what is logged."""
    words = [sys.executable, "-c", _ASK, str(tmp_path), whose]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split("\n")[-2] == seen
