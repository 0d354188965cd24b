"""LibvirtStorage in a Ceph cluster: the template comes into the disks' own pool once, and every
disk is a clone of it (B19)."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.backends.backend import PoolsOf
from millpond.backends.growth import CanOpen
from millpond.backends.libvirt_storage import LibvirtStorage, spec_of
from millpond.errors import MillpondError, VolumeExists
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import CephAccess, Chain, FileSource, Layer, RbdSource
from millpond.model.server import Disk
from millpond.model.template import Template
from millpond.model.volume import Volume, VolumeSpec
from millpond.storage import host_files
from millpond.storage.pool import Pool
from millpond.storage.transfer import download
from millpond.system import files, qemu_img, rbd
from millpond.system.locks import Locks

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bringing:
    """As whom templates are brought into a cluster."""

    owner: Callable[[], str]
    """Tells this state directory from others that share the pool."""
    locks: Locks
    """Of all hosts of the state directory: they may share the pool, too."""
    incoming: Path
    """Where a template passes through that lies on a host whose files are not here."""


class RbdStorage(LibvirtStorage):
    def __init__(
        self,
        pools: PoolsOf,
        pool: str,
        bringing: Bringing,
        can_open: CanOpen = host_files.can_open,
    ) -> None:
        super().__init__(Backend.RBD, pools, pool=pool, can_open=can_open)
        self._bringing = bringing
        self._locks = bringing.locks

    def forget_template(self, name: str) -> None:
        """Remove a template from the cluster. Clones of other hosts keep it; one that is gone
        already is no error."""
        pool = self._pools.named(self._own_pool)
        with self._locks.hold(f"rbd-template:{name}"):
            complete = _image(pool, name, COMPLETE)
            if not rbd.has_snapshot(complete):
                return
            if clones := rbd.children(complete):
                LOG.info("template %s stays in pool %s for %s", name, pool.name, clones)
                return
            _remove(pool, name)
            LOG.info("removed template %s from pool %s", name, pool.name)

    def bring(self, template: Template) -> None:
        pool = self._pools.named(self._own_pool)
        if self._in_this_cluster(pool, template) is None:
            with self._locks.hold(f"rbd-template:{template.volume}"):
                self._brought(pool, template)

    def freeze(self, disk: Disk) -> None:
        self.thaw(disk)
        rbd.create_snapshot(self._frozen(disk))

    def thaw(self, disk: Disk) -> None:
        rbd.remove_snapshot(self._frozen(disk))

    def _frozen(self, disk: Disk) -> RbdSource:
        return _image(self._pools.named(disk.pool), disk.volume, FROZEN)

    def _is_here(self, disk: Disk) -> bool:
        return True  # as much as anywhere: the cluster is asked, and not the host

    def _layers(self, disk: Disk) -> Chain:
        return (Layer(source=self._frozen(disk), format=disk.format),)

    def forget_link(self, template: Template) -> None:
        """Take away the snapshot that clones were made from of a volume that is somebody else's.
        Those of other hosts keep it."""
        linked = template.link.rbd if template.link else None
        if linked is None or linked.snapshot:
            return
        mark = replace(linked, snapshot=COMPLETE)
        with rbd.exclusively(mark.access, mark.image):
            if rbd.has_snapshot(mark) and not rbd.children(mark) and rbd.unprotect_snapshot(mark):
                rbd.remove_snapshot(mark)

    def _copy(self, disk: Disk, template: Template) -> None:
        pool = self._pools.named(disk.pool)
        if origin := self._in_this_cluster(pool, template):
            self._clone(disk, origin, template)
            return
        with self._locks.hold(f"rbd-template:{template.volume}"):
            brought = self._brought(pool, template)
        pool.create_from(spec_of(disk), brought)
        LOG.info("made %s/%s, a clone of %s", disk.pool, disk.volume, brought.name)

    def _in_this_cluster(self, pool: Pool, template: Template) -> RbdSource | None:
        """What disks can be cloned from without anything being brought. A volume gets a snapshot
        of ours: only those can be cloned."""
        linked = template.link.rbd if template.link else None
        if linked is None or template.format is not DiskFormat.RAW:
            return None
        if rbd.cluster_id(linked.access) != rbd.cluster_id(_access(pool)):
            return None
        if linked.snapshot:
            return linked
        mark = replace(linked, snapshot=COMPLETE)
        if not rbd.has_snapshot(mark, protected=True):
            with rbd.exclusively(mark.access, mark.image):
                if not rbd.has_snapshot(mark):
                    rbd.create_snapshot(mark)
                if not rbd.has_snapshot(mark, protected=True):
                    rbd.protect_snapshot(mark)
        return mark

    def _clone(self, disk: Disk, origin: RbdSource, template: Template) -> None:
        """libvirt clones within one pool only. It has made the volume and so knows of it; a pool
        is refreshed by opening every image in it. What lies behind the image in a longer volume is
        cut off before the disk grows."""
        pool = self._pools.named(disk.pool)
        pool.create(spec_of(disk))
        made = _image(pool, disk.volume)
        rbd.remove(made)
        rbd.clone(origin, made)
        rbd.resize(made, template.virtual_size)
        rbd.resize(made, disk.size)
        LOG.info("made %s/%s, a clone of %s", disk.pool, disk.volume, origin.name)

    def _brought(self, pool: Pool, template: Template) -> Volume:
        """The template as an image of this pool, which another host may have brought."""
        if not is_complete(_access(pool), template.volume):
            self._bring(pool, template)
        if found := pool.find(template.volume):
            return found
        pool.refresh()
        return pool.get(template.volume)

    def _bring(self, pool: Pool, template: Template) -> None:
        """Under a name of this host's own, so that nobody else touches it; it gets the template's
        name when it is complete, unless another host was quicker."""
        ours = f"{template.volume}.{self._bringing.owner()}."
        self._sweep(pool, ours)
        part = ours + os.urandom(4).hex()
        try:
            with self._source(template) as source:
                self._import(pool, part, source, template.virtual_size)
            with rbd.exclusively(_access(pool), template.volume):
                brought = rbd.rename(_image(pool, part), template.volume)
        except BaseException:
            self._sweep(pool, ours)
            raise
        if brought:
            LOG.info("brought template %s into pool %s", template.volume, pool.name)
            return
        _remove(pool, part)
        if not is_complete(_access(pool), template.volume):
            raise VolumeExists(pool.name, template.volume)

    def _sweep(self, pool: Pool, beginning: str) -> None:
        """What attempts of ours left that failed or died: we hold the lock. Ceph refuses to remove
        what a process that died had open, for half a minute; the next attempt will."""
        for volume in pool.volumes():
            if volume.name.startswith(beginning):
                with suppress(MillpondError):
                    _remove(pool, volume.name)

    @contextmanager
    def _source(self, template: Template) -> Iterator[Layer]:
        """Where its bytes can be read here: they are fetched if its host is elsewhere."""
        if template.linked_layer:
            yield template.linked_layer
            return
        base = self._pools.base.get(template.volume)
        if self._can_open(base, os.R_OK):
            yield Layer(source=FileSource(path=base.path), format=template.format)
            return
        fetched = self._bringing.incoming / template.volume
        fetched.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.remove(fetched)  # of an attempt that was interrupted: we hold the lock
        try:
            download(self._pools.base, template.volume, fetched)
            yield Layer(source=FileSource(path=str(fetched)), format=template.format)
        finally:
            files.remove(fetched)

    def _import(self, pool: Pool, part: str, source: Layer, size: int) -> None:
        pool.create(VolumeSpec(name=part, format=DiskFormat.RAW, capacity=size))
        qemu_img.fill(Layer(source=_image(pool, part), format=DiskFormat.RAW), [source])
        complete = _image(pool, part, COMPLETE)
        rbd.create_snapshot(complete)
        rbd.protect_snapshot(complete)


def _image(pool: Pool, name: str, snapshot: str = "") -> RbdSource:
    return RbdSource(access=_access(pool), image=name, snapshot=snapshot)


def _access(pool: Pool) -> CephAccess:
    assert pool.ceph is not None  # only RBD pools are given to this backend
    return pool.ceph


def _remove(pool: Pool, name: str) -> None:
    """An image with its mark; one that is not there is no error."""
    complete = _image(pool, name, COMPLETE)
    if rbd.has_snapshot(complete, protected=True):
        rbd.unprotect_snapshot(complete)
    rbd.remove_snapshot(complete)
    rbd.remove(_image(pool, name))
    pool.refresh()
