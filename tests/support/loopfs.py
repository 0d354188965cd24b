"""Real file systems on loop devices, so that tests can fill one, clone on one, count its bytes."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pytest

from tests.support.waiting import wait_for

FilesystemKind = Literal["ext4", "xfs", "btrfs"]

MIB = 1024**2

# mkfs.xfs of Debian 12 refuses anything below 300 MiB; the file is sparse, so size is free.
DEFAULT_SIZE = 512 * MIB

# ext4 would otherwise zero its inode tables and journal in the background, and those writes would
# land in somebody's count.
_MKFS: dict[FilesystemKind, tuple[str, ...]] = {
    "ext4": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
_PACKAGE: dict[FilesystemKind, str] = {
    "ext4": "e2fsprogs",
    "xfs": "xfsprogs",
    "btrfs": "btrfs-progs",
}

# /sys/block/*/stat counts in these, whatever the device's own sector is
# (Documentation/block/stat.rst in Linux); the seventh field is sectors written.
_STAT_SECTOR = 512
_STAT_WRITTEN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFilesystem:
    kind: FilesystemKind
    path: Path
    device: Path
    written_before: int

    def bytes_written(self) -> int:
        """What has reached the device since it was mounted: data, metadata and journal alike."""
        subprocess.run(["sync", "--file-system", str(self.path)], check=True)
        return _written(self.device) - self.written_before

    def lose_power(self) -> None:
        """What has not reached the device is gone. It is mounted again as it is then."""
        backing, left = _backing(self.path), _backing(self.path).with_suffix(".left")
        subprocess.run(["cp", "--sparse=always", str(backing), str(left)], check=True)
        _unmount(self.path)
        left.replace(backing)
        _mount(_attach_or_skip(backing), self.path)


def _backing(where: Path) -> Path:
    return where.with_name(f".{where.name}.img")


class MakeFilesystem(Protocol):
    def __call__(self, kind: FilesystemKind, size: int = DEFAULT_SIZE) -> LoopFilesystem: ...


@contextlib.contextmanager
def loop_filesystem(kind: FilesystemKind, size: int, where: Path) -> Iterator[LoopFilesystem]:
    """A file system of `size` bytes at `where`, which is made for it.

    A private libvirtd sees it when `where` lies beneath the session's directory.
    """
    mkfs = _mkfs_or_skip(kind)
    backing = _backing(where)
    with backing.open("xb") as file:
        file.truncate(size)
    subprocess.run([*mkfs, str(backing)], check=True, capture_output=True)
    where.mkdir()
    device = _attach_or_skip(backing)
    # The kernel goes on counting from whoever had this device before.
    before = _written(device)
    try:
        _mount(device, where)
        yield LoopFilesystem(kind=kind, path=where, device=device, written_before=before)
    finally:
        _unmount(where)
        wait_for(lambda: not Path(f"/sys/block/{device.name}/loop").exists(), 5)
        backing.unlink()
        where.rmdir()


def fill(path: Path, leaving: int = 0) -> None:
    """A new file that takes all of its file system but for so many bytes."""
    with path.open("xb") as file:
        for piece in (16 * MIB, MIB, 65536, 4096, 512):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
        os.truncate(path, max(0, path.stat().st_size - leaving))
        os.fsync(file.fileno())


def _written(device: Path) -> int:
    fields = Path(f"/sys/block/{device.name}/stat").read_text().split()
    return int(fields[_STAT_WRITTEN]) * _STAT_SECTOR


def _mkfs_or_skip(kind: FilesystemKind) -> tuple[str, ...]:
    program, *options = _MKFS[kind]
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is missing: apt-get install {_PACKAGE[kind]}")
    skip_unless_kernel_has(kind)
    return found, *options


def skip_unless_kernel_has(kind: str) -> None:
    if kind not in Path("/proc/filesystems").read_text().split():
        done = subprocess.run(["modprobe", kind], capture_output=True)
        if done.returncode:
            pytest.skip(f"this kernel has no {kind}: modprobe {kind}")


def _attach_or_skip(backing: Path) -> Path:
    done = subprocess.run(
        ["losetup", "--find", "--show", str(backing)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no loop device ({done.stderr.strip()}): modprobe loop, as root")
    return Path(done.stdout.strip())


def _mount(device: Path, where: Path) -> None:
    try:
        subprocess.run(["mount", str(device), str(where)], check=True)
        where.chmod(0o755)
    finally:
        # While it is mounted this only asks for a detach at the last unmount, so not even a
        # killed session leaves a device attached for longer than its mount.
        subprocess.run(["losetup", "--detach", str(device)], check=True)


def _unmount(where: Path) -> None:
    if not where.is_mount():
        return

    def unmounted() -> bool:
        return subprocess.run(["umount", str(where)], capture_output=True).returncode == 0

    try:
        wait_for(unmounted, 5)
    except AssertionError:
        # Somebody still has a file open there; the device goes when that is closed.
        subprocess.run(["umount", "--lazy", str(where)], check=True)
        raise
