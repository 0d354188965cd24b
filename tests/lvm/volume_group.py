"""A volume group on the nested machine's empty disk, and what LVM itself says of it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millpond.model.sizes import GiB, MiB

EXTENT = 4 * MiB
SOIL = b"SECRET!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeGroup:
    name: str

    def read(self, volume: str) -> bytes:
        return self.path(volume).read_bytes()

    def soil(self, size: int) -> None:
        """The extents that LVM takes next hold what another server wrote."""
        with self.create("old", size).open("wb") as device:
            device.write(SOIL * (size // len(SOIL)))
        _run("lvremove", "--yes", f"{self.name}/old")

    def path(self, volume: str) -> Path:
        return Path("/dev") / self.name / volume

    def volumes(self) -> dict[str, int]:
        """Sizes by name, in bytes; a name in brackets is of a volume that only LVM uses."""
        rows = _run("lvs", "--all", "--options", "lv_name,lv_size", *_PLAIN, self.name)
        return {name: int(size) for name, size in map(str.split, rows.splitlines())}

    def free(self) -> int:
        return int(_run("vgs", "--options", "vg_free", *_PLAIN, self.name))

    def create(self, volume: str, size: int) -> Path:
        """Behind libvirt's back."""
        _run("lvcreate", "--yes", "--name", volume, "--size", f"{size}b", self.name)
        return self.path(volume)

    def extend(self, volume: str, size: int) -> None:
        _run("lvextend", "--size", f"{size}b", f"{self.name}/{volume}")

    def clear(self) -> None:
        _run("lvremove", "--yes", self.name)


_PLAIN = ("--noheadings", "--units", "b", "--nosuffix")


def make_volume_group(name: str, device: Path, extent: int = EXTENT) -> VolumeGroup:
    """What the device held before is lost."""
    _run("vgcreate", "--yes", "--physicalextentsize", f"{extent}b", name, str(device))
    return VolumeGroup(name=name)


@contextmanager
def group_in_file(
    name: str, path: Path, extent: int, size: int = 4 * GiB
) -> Iterator[VolumeGroup]:
    """On a loop device. Placement counts in GiB; of the file only what is written takes space."""
    path.touch()
    os.truncate(path, size)
    device = Path(_run("losetup", "--find", "--show", str(path)).strip())
    try:
        yield make_volume_group(name, device, extent)
    finally:
        _run("vgremove", "--force", "--yes", name)
        _run("losetup", "--detach", str(device))


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout
