"""A compute node with Nova's own driver, as a release of Nova leaves it: without a cloud."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import driver_alone

DISKS = ["disk", "disk.config", "disk.eph0", "disk.swap"]
"""Of each server that it makes."""
_PROGRAM = driver_alone.PROGRAM.with_name("nova_alone.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    libvirtd: PrivateLibvirtd
    directory: Path
    release: int

    @property
    def instances(self) -> Path:
        return self.directory / "instances"

    def run_nova(self, images_type: str, verb: str, *words: object) -> dict[str, str]:
        """It does that and ends, as a nova-compute that is stopped for good: ids by names."""
        own = {
            "DEFAULT": {"compute_driver": "libvirt.LibvirtDriver", "mkisofs_cmd": "genisoimage"},
            "libvirt": {"images_type": images_type},
            "api_database": {"connection": f"sqlite:///{self.directory}/nova.sqlite"},
        }
        place = (self.directory, self.libvirtd)
        told = (_PROGRAM, verb, *words)
        done = driver_alone.start(*place, *told, extra=own, release=self.release)
        assert done.returncode == 0, done.stderr[-5000:]
        made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return made

    def console(self, id: str) -> str:
        log = self.instances / id / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def boots(self, id: str) -> int:
        found = re.findall(r"BOOTS ([0-9A-F]+)", self.console(id))
        return max((int(each, 16) for each in found), default=0)

    def disks(self, id: str) -> list[str]:
        """The files of an instance directory that are disks."""
        directory = self.instances / id
        found = os.listdir(directory) if directory.exists() else []
        return sorted(each for each in found if re.match(r"disk(\.(?!info)|$)", each))
