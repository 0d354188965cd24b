"""The directory of one test session: walkable by QEMU's user, shared with private libvirtds.

It is a mount of its own with shared propagation, so that what is mounted beneath it later is
also seen by namespaces that were made before. Its owner holds a lock on it; a directory without
an owner was left by a session that was killed, and the next session takes it away with all
processes, mounts and loop devices that belong to it.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath

from tests.support.processes import Belongs, end_processes

_PREFIX = "millpond-test-"

# Not the temporary directory of pytest: that one is 0700, and QEMU's user could not enter it.
_PARENT = Path("/var/tmp")


def reason_to_skip() -> str | None:
    """Why no session can have a directory here, with the command that would change that."""
    if os.geteuid() != 0:
        return "mounts and namespaces need root: sudo make test"
    if subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True).returncode:
        return "root may not make namespaces here: docker run --privileged, or a virtual machine"
    return None


@contextlib.contextmanager
def session_directory(parent: Path = _PARENT) -> Iterator[Path]:
    """A fresh directory (0755) for the length of a session; needs root."""
    remove_dead_sessions(parent)
    path, lock = _claim_new(parent)
    try:
        share_mounts(path)
        yield path
    finally:
        _remove(path)
        os.close(lock)


def remove_dead_sessions(parent: Path = _PARENT) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.geteuid():
            continue
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except BlockingIOError:
            pass  # its session is alive
        finally:
            os.close(lock)


def _claim_new(parent: Path) -> tuple[Path, int]:
    # It gets the name that remove_dead_sessions() looks for only when the lock is held.
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
    lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    hidden.chmod(0o755)
    return hidden.rename(parent / hidden.name.removeprefix(".")), lock


def share_mounts(path: Path) -> None:
    # Private first: where / is shared (systemd does that), the new mount would join the peers of
    # /, and everything mounted beneath would appear a second time below it.
    _mount("--bind", str(path), str(path))
    _mount("--make-private", str(path))
    _mount("--make-shared", str(path))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _remove(path: Path) -> None:
    end_processes(_lives_in(path))
    _unmount_beneath(path)
    _detach_loops_beneath(path)
    if left := _mounts_beneath(path):
        raise RuntimeError(f"still mounted, so {path} stays: {left}")
    shutil.rmtree(path)


def _lives_in(path: Path) -> Belongs:
    """Whether a process has its /run inside `path`: every private libvirtd's processes do."""

    def belongs(pid: int) -> bool:
        return any(
            point == "/run" and path.name in PurePath(root).parts
            for root, point in _mount_table(str(pid))
        )

    return belongs


def _mount_table(process: str = "self") -> list[tuple[str, str]]:
    """(root within its file system, mount point) of each mount that a process sees."""
    try:
        lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    except OSError:  # the process has ended meanwhile
        return []
    return [(fields[3], fields[4]) for fields in map(str.split, lines)]


def _mounts_beneath(path: Path) -> list[str]:
    return [point for _, point in _mount_table() if Path(point).is_relative_to(path)]


def _unmount_beneath(path: Path) -> None:
    for point in reversed(_mounts_beneath(path)):
        if subprocess.run(["umount", point], capture_output=True).returncode:
            subprocess.run(["umount", "--lazy", point], check=True)


def _detach_loops_beneath(path: Path) -> None:
    # Only a session killed between losetup and mount leaves one: see loopfs.
    listing = subprocess.run(
        ["losetup", "--list", "--json", "--output", "NAME,BACK-FILE"],
        capture_output=True,
        text=True,
    ).stdout
    for device in json.loads(listing)["loopdevices"] if listing else []:
        if Path(device["back-file"]).is_relative_to(path):
            subprocess.run(["losetup", "--detach", device["name"]], check=True)
