"""File systems and swap areas in plain files."""

from pathlib import Path

from millpond.errors import BadOption
from millpond.system.process import Handed, run

_MKE2FS = Path("/etc/mke2fs.conf")

_WORDS = {
    "ext2": ["mke2fs", "-q", "-F", "-t", "ext2", "-L"],
    "ext3": ["mke2fs", "-q", "-F", "-t", "ext3", "-L"],
    "ext4": ["mke2fs", "-q", "-F", "-t", "ext4", "-L"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-L"],
    "vfat": ["mkfs.vfat", "-n"],
}

FILESYSTEMS = tuple(_WORDS)
"""Kinds that an ephemeral disk may have."""


def make_filesystem(path: Path, kind: str, label: str) -> None:
    if kind not in _WORDS:
        allowed = f"allowed: {', '.join(FILESYSTEMS)}"
        raise BadOption("default_ephemeral_format", f"{kind!r} is not known", allowed)
    run([*_WORDS[kind], label, str(path)], handed=Handed(reads=[_MKE2FS], writes=[path]))


def make_swap(path: Path) -> None:
    run(["mkswap", str(path)], handed=Handed(writes=[path]))
