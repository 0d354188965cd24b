"""Another volume with the same bytes, in the pool of a disk that nobody writes to."""

import logging
import os
from contextlib import suppress

from millpond.disks import own_format
from millpond.disks.libvirt_storage import spec_of
from millpond.errors import NeedsHostFiles, VolumeNotFound
from millpond.libvirt.locality import can_open
from millpond.libvirt.pool import Pool
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.layer import CephAccess, RbdSource
from millpond.model.server import Disk
from millpond.model.volume import Volume, VolumeSpec
from millpond.system import files, rbd

LOG = logging.getLogger(__name__)


def check_duplicate(pool: Pool, disk: Disk) -> bool:
    """Whether it is a file that is copied here; what cannot be opened here, or is a device, is
    copied by libvirt, if it is raw: of any other format that would make one image of all layers.
    Raises NeedsHostFiles then; changes nothing."""
    source = pool.get(disk.volume)
    if pool.capabilities.sparse and can_open(pool, source, os.R_OK):
        return True
    if disk.format is DiskFormat.RAW and source.is_seen_as(DiskFormat.RAW):
        return False
    reason = f"libvirt cannot copy a {disk.format} volume as it is"
    raise NeedsHostFiles(f"a copy of {disk.role}", reason, source.path)


def duplicate(pool: Pool, disk: Disk, copy: Disk, progress: Progress = noop) -> None:
    """One that was begun and not finished is made again. A file by reflink, else by a copy that
    keeps holes; an image of Ceph by a copy of what its template has not."""
    with suppress(VolumeNotFound):
        pool.delete(copy.volume)
    source = pool.get(disk.volume)
    if pool.ceph:
        how = _copy_image(pool, pool.ceph, disk, copy)
    elif check_duplicate(pool, disk):
        how = _copy_file(pool, source, copy, progress)
    else:
        pool.create_from(spec_of(copy), source)
        how = "libvirt"
    LOG.info("copied %s/%s to %s by %s", disk.pool, disk.volume, copy.volume, how)


def _copy_image(pool: Pool, access: CephAccess, disk: Disk, copy: Disk) -> str:
    """In place of one that libvirt has made, so that the pool knows it: a refresh would open every
    image. libvirt's own copies are clones of the disk, which could not be removed then."""
    pool.create(spec_of(copy))
    made = RbdSource(access=access, image=copy.volume)
    rbd.remove(made)
    rbd.copy(RbdSource(access=access, image=disk.volume), made)
    return "rbd"


def _copy_file(pool: Pool, source: Volume, copy: Disk, progress: Progress) -> str:
    """Into one that libvirt has made, so that the pool knows it; of its content libvirt learns by
    the refresh."""
    volume = pool.create(VolumeSpec(name=copy.volume, format=DiskFormat.RAW, capacity=0))
    with (
        own_format.room_for(volume, source.allocation),
        open(source.path, "rb") as original,
        open(volume.path, "r+b") as target,
    ):
        how = files.copy_into(original.fileno(), target.fileno(), progress)
        files.sync(target.fileno())
    pool.refresh()
    return how
