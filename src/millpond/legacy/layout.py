"""Finding the disks that Nova laid out outside of storage pools, by their names (B22).

    <instances_path>/<uuid>/disk, disk.local, disk.eph0, disk.swap, disk.config    Flat, Qcow2
    <instances_path>/<uuid>/disk/root.hds, DiskDescriptor.xml                      Ploop
    <volume group>/<uuid>_disk                                                     Lvm
    <Ceph pool>/<uuid>_disk                                                        Rbd

On LVM Nova doubles each _ in a disk's name; none of the names that it gives has one.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from millpond.errors import DamagedRecord, DiskRefused
from millpond.legacy import disk_info, image_files
from millpond.legacy.disk import CONFIG_DRIVE, NO_EVIDENCE, LegacyDisk, LegacyServer
from millpond.legacy.image_files import ImageCache, is_nova_base
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import UUID, ServerId, split_volume_name, volume_name
from millpond.model.server import Disk
from millpond.model.volume import Volume
from millpond.system import files

_ID = re.compile(UUID)
_ROLE = re.compile(r"disk(\.local|\.swap|\.eph\d+|\.config)?(\.rescue)?")
_RAW = (CONFIG_DRIVE, "kernel", "ramdisk")
"""Whatever images_type says. Nova's disk.info tells of none of them."""


def find_ids(instances: Path) -> Iterator[ServerId]:
    """Of servers with a disk image in their directory; none is looked into."""
    for directory in files.entries(instances):
        if _ID.fullmatch(directory.name) and any(
            _ROLE.fullmatch(each.name) and not each.name.startswith(CONFIG_DRIVE)
            for each in files.entries(directory)
        ):
            yield ServerId(directory.name)


def is_nova_disk(disk: Disk) -> bool:
    """Whether Nova's driver would find it in an instance directory, under the name that it gives,
    and what it is backed by in its cache."""
    if disk.role in _RAW:
        return True
    is_file = disk.backend in (Backend.RAW, Backend.QCOW2) and disk.is_attached
    base = disk.template.volume if disk.overlay and disk.template else ""
    return is_file and bool(_ROLE.fullmatch(disk.role)) and (not base or is_nova_base(base))


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaLayout:
    instances: Path
    cache: ImageCache
    usual: DiskFormat
    """Of a file that no disk.info tells of: what images_type says."""
    pools: tuple[Path, ...] = ()
    """Directories of our pools: what lies there under a disk's name, too, is a conflict."""
    volumes: Mapping[Backend, Pool] = field(default_factory=dict)
    """Of LVM and of RBD: what Nova put there is a volume of ours but for the record (B25)."""

    def servers(self, *, known: Collection[str] = ()) -> list[LegacyServer]:
        """All that are here. Those that are ``known`` to be Millpond's have volumes of LVM and RBD
        under the same names, and are legacy by their files only."""
        named = [path.name for path in files.entries(self.instances) if path.is_dir()]
        volumes = [(id, disk) for id, disk in self._volumes() if id not in known]
        ids = sorted({*filter(_ID.fullmatch, named), *(id for id, _ in volumes)})
        found = (self._server(ServerId(id), volumes) for id in ids)
        return [server for server in found if server]

    def find(self, id: ServerId) -> LegacyServer | None:
        return self._server(id, list(self._volumes())) if _ID.fullmatch(id) else None

    def find_moving(self, id: ServerId) -> LegacyServer | None:
        """One whose journal says that its disks are on their way: each may be in a pool of ours,
        too, and that is no conflict (B22)."""
        return replace(self, pools=(), volumes={}).find(id)

    def uses(self) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
        """The bases in the cache by name, each with a disk that is backed by it; and, in words,
        the disks that cannot be read: they may be backed by any."""
        disks = [disk for server in self.servers() for disk in server.disks]
        used = [(disk.base.volume, f"disk {disk.path}") for disk in disks if disk.base]
        unknown = (disk for disk in disks if not disk.layout and disk.content not in NO_EVIDENCE)
        return used, tuple(f"perhaps disk {disk.path}, which cannot be read" for disk in unknown)

    def _server(
        self, id: ServerId, volumes: Sequence[tuple[str, LegacyDisk]]
    ) -> LegacyServer | None:
        """None without a disk image: a config drive alone is no evidence."""
        disks = [*self._files(id), *(disk for owner, disk in volumes if owner == id)]
        if all(disk.content in NO_EVIDENCE for disk in disks):
            return None
        return LegacyServer(id=id, disks=tuple(self._compare(id, each, disks) for each in disks))

    def _files(self, id: ServerId) -> Iterator[LegacyDisk]:
        directory = self.instances / id
        try:
            formats, damage = disk_info.read(directory), ""
        except DamagedRecord as error:
            formats, damage = {}, str(error)
        for path in files.entries(directory):
            raw = path.name.startswith(_RAW)
            if not _ROLE.fullmatch(path.name) and path.name not in _RAW:
                continue
            usual = DiskFormat.RAW if raw else self.usual
            yield self._describe(path, formats.get(path.name, usual), damage)

    def _describe(self, path: Path, format: str, damage: str) -> LegacyDisk:
        try:
            if damage:
                raise DiskRefused(str(path), damage)
            return image_files.describe(path, format, self.cache)
        except DiskRefused as error:
            reason = error.reason
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
        return LegacyDisk(role=path.name, path=str(path), obstacles=(reason,))

    def _volumes(self) -> Iterator[tuple[str, LegacyDisk]]:
        for backend, pool in self.volumes.items():
            for volume in pool.volumes():
                id, role = split_volume_name(volume.name) or ("", "")
                if _ROLE.fullmatch(role):
                    yield id, _of_pool(role, backend, volume)

    def _compare(self, id: ServerId, disk: LegacyDisk, all_: Sequence[LegacyDisk]) -> LegacyDisk:
        """With a conflict if the same disk lies in another place, too, and is another one."""
        elsewhere = [each.path for each in all_ if each.role == disk.role and each is not disk]
        for pool in self.pools:
            path = pool / volume_name(id, disk.role)
            if path.exists() and not _is_same(path, disk.path):
                elsewhere.append(str(path))
        conflicts = (f"it is in two places: {each} is there, too" for each in elsewhere)
        return replace(disk, obstacles=(*disk.obstacles, *conflicts))


def _of_pool(role: str, backend: Backend, volume: Volume) -> LegacyDisk:
    return LegacyDisk(
        role=role,
        path=volume.path,
        layout=backend,
        format=backend.disk_format,
        size=volume.capacity,
        pool=volume.pool,
        volume=volume.name,
    )


def _is_same(path: Path, other: str) -> bool:
    """One inode under two names: a transition that was begun."""
    return os.path.exists(other) and os.path.samefile(path, other)
