"""A volume group on the nested machine's empty disk, and what LVM itself says of it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

EXTENT = 4 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeGroup:
    name: str

    def path(self, volume: str) -> Path:
        return Path("/dev") / self.name / volume

    def volumes(self) -> dict[str, int]:
        """Sizes by name, in bytes; a name in brackets is of a volume that only LVM uses."""
        rows = _lvm("lvs", "--all", "--options", "lv_name,lv_size", *_PLAIN, self.name)
        return {name: int(size) for name, size in map(str.split, rows.splitlines())}

    def free(self) -> int:
        return int(_lvm("vgs", "--options", "vg_free", *_PLAIN, self.name))

    def create(self, volume: str, size: int) -> Path:
        """Behind libvirt's back."""
        _lvm("lvcreate", "--yes", "--name", volume, "--size", f"{size}b", self.name)
        return self.path(volume)

    def extend(self, volume: str, size: int) -> None:
        _lvm("lvextend", "--size", f"{size}b", f"{self.name}/{volume}")

    def clear(self) -> None:
        _lvm("lvremove", "--yes", self.name)


_PLAIN = ("--noheadings", "--units", "b", "--nosuffix")


def make_volume_group(name: str, device: Path) -> VolumeGroup:
    """What the device held before is lost."""
    _lvm("vgcreate", "--yes", "--physicalextentsize", f"{EXTENT}b", name, str(device))
    return VolumeGroup(name=name)


def _lvm(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout
