"""LibvirtStorage in a Ceph cluster: the template comes into the disks' own pool once, and every
disk is a clone of it (B19)."""

import logging
import os

from millpond.backends.backend import PoolsOf
from millpond.backends.libvirt_storage import LibvirtStorage, spec_of
from millpond.errors import Busy, NeedsHostFiles
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import CephAccess, Chain, FileSource, Layer, RbdSource
from millpond.model.server import Disk
from millpond.model.template import Template
from millpond.model.volume import Volume, VolumeSpec
from millpond.storage.pool import Pool
from millpond.system import qemu_img, rbd
from millpond.system.locks import Locks
from millpond.undo import undo_on_failure

LOG = logging.getLogger(__name__)

COMPLETE = "millpond"
"""The protected snapshot that a template in the cluster has once all of its bytes are there.
libvirt clones from it, because nothing has changed since."""
FROZEN = "millpond-frozen"
"""The snapshot that a disk is read from while its server writes on."""


def is_complete(access: CephAccess, template: str) -> bool:
    """Whether all of a template is in the cluster."""
    complete = RbdSource(access=access, image=template, snapshot=COMPLETE)
    return rbd.has_snapshot(complete, protected=True)


class RbdStorage(LibvirtStorage):
    def __init__(self, pools: PoolsOf, pool: str, locks: Locks) -> None:
        super().__init__(Backend.RBD, pools, pool=pool)
        self._locks = locks

    def forget_template(self, name: str) -> None:
        """Remove a template from the cluster. Clones of other hosts keep it; one that is gone
        already is no error."""
        pool = self._pools.named(self._own_pool)
        with self._locks.hold(f"rbd-template:{name}"):
            complete = _image(pool, name, COMPLETE)
            if not rbd.has_snapshot(complete):
                return
            if rbd.has_snapshot(complete, protected=True) and not rbd.unprotect_snapshot(complete):
                LOG.info("template %s stays in pool %s: disks stand on it", name, pool.name)
                return
            rbd.remove_snapshot(complete)
            pool.delete(name)
            LOG.info("removed template %s from pool %s", name, pool.name)

    def freeze(self, disk: Disk) -> None:
        self.thaw(disk)
        rbd.create_snapshot(self._frozen(disk))

    def thaw(self, disk: Disk) -> None:
        rbd.remove_snapshot(self._frozen(disk))

    def _frozen(self, disk: Disk) -> RbdSource:
        return _image(self._pools.named(disk.pool), disk.volume, FROZEN)

    def _layers(self, disk: Disk) -> Chain:
        return (Layer(source=self._frozen(disk), format=disk.format),)

    def _copy(self, disk: Disk, base: Volume, template: Template) -> None:
        pool = self._pools.named(disk.pool)
        with self._locks.hold(f"rbd-template:{template.volume}"):
            origin = self._brought(pool, base, template)
        pool.create_from(spec_of(disk), origin)
        LOG.info("made %s/%s, a clone of %s", disk.pool, disk.volume, origin.name)

    def _brought(self, pool: Pool, base: Volume, template: Template) -> Volume:
        """The template as an image of this pool. Another host may have brought it, or died while
        it did: only the snapshot says that it is complete."""
        if not is_complete(_access(pool), template.volume):
            self._bring(pool, base, template)
        if found := pool.find(template.volume):
            return found
        pool.refresh()
        return pool.get(template.volume)

    def _bring(self, pool: Pool, base: Volume, template: Template) -> None:
        if not self._can_open(base.path, os.R_OK):
            what = f"bringing template {base.name} into pool {pool.name}"
            raise NeedsHostFiles(what, "libvirt takes no uploads there", base.path)
        _clear(pool, template.volume)
        wanted = VolumeSpec(
            name=template.volume, format=DiskFormat.RAW, capacity=template.virtual_size
        )
        with undo_on_failure() as undo:
            pool.create(wanted)
            undo.callback(pool.delete, wanted.name)
            source = Layer(source=FileSource(path=base.path), format=template.format)
            target = Layer(source=_image(pool, wanted.name), format=wanted.format)
            qemu_img.fill(target, [source])
            complete = _image(pool, wanted.name, COMPLETE)
            undo.callback(rbd.remove_snapshot, complete)
            rbd.create_snapshot(complete)
            rbd.protect_snapshot(complete)
        LOG.info("brought template %s into pool %s", wanted.name, pool.name)


def _image(pool: Pool, name: str, snapshot: str = "") -> RbdSource:
    return RbdSource(access=_access(pool), image=name, snapshot=snapshot)


def _access(pool: Pool) -> CephAccess:
    assert pool.ceph is not None  # only RBD pools are given to this backend
    return pool.ceph


def _clear(pool: Pool, name: str) -> None:
    """What somebody began to bring and never finished. Who is still at it has it open."""
    pool.refresh()
    if pool.find(name) is None:
        return
    if rbd.is_open(_image(pool, name)):
        raise Busy(f"template {name} in pool {pool.name}")
    rbd.remove_snapshot(_image(pool, name, COMPLETE))
    pool.delete(name)
    LOG.info("removed template %s from pool %s: it was not complete", name, pool.name)
