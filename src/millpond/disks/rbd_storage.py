"""LibvirtStorage in a Ceph cluster: the template comes into the disks' own pool once, and every
disk is a clone of it (B19)."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from millpond.disks.backend import PoolsOf
from millpond.disks.libvirt_storage import LibvirtStorage, spec_of
from millpond.errors import MillpondError, VolumeExists
from millpond.libvirt.pool import Pool, download
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import CephAccess, Chain, FileSource, Layer, RbdSource
from millpond.model.server import Disk
from millpond.model.template import Template
from millpond.model.volume import Volume, VolumeSpec
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


class RbdStorage(LibvirtStorage):
    def __init__(
        self,
        pools: PoolsOf,
        *,
        owner: Callable[[], str],
        locks: Locks,
        incoming: Path,
    ) -> None:
        """``owner`` tells this state directory from others that share the pool; ``locks`` are
        those of all its hosts, which may share it, too; a template of a remote host passes through
        ``incoming``."""
        super().__init__(Backend.RBD, pools)
        self._owner = owner
        self._locks = locks
        self._incoming = incoming

    def remove_template(self, name: str) -> None:
        """Remove a template from the cluster. Clones of other hosts keep it; one that is gone
        already is no error."""
        pool = self._pools.for_disk(Backend.RBD)
        with self._locks.hold(f"rbd-template:{name}"):
            self._cleanup(pool, name)
            if aside := self._take_aside(pool, name):
                _remove(pool, aside)
                LOG.info("removed template %s from pool %s", name, pool.name)

    def _take_aside(self, pool: Pool, name: str) -> str | None:
        """A template that nothing was cloned from, under a name of this host's own, so that one
        whose removal is interrupted is never met under the template's; None if it stays."""
        aside = self._own_name(name)
        with rbd.holding_lock(_access(pool), name) as lease:
            complete = _image(pool, name, COMPLETE)
            if not rbd.has_snapshot(complete):
                return None
            clones = rbd.children(complete)
            if not clones and rbd.rename(_image(pool, name), aside, lease):
                if _unprotect(_image(pool, aside, COMPLETE)):
                    return aside
                rbd.rename(_image(pool, aside), name, lease)  # a host has cloned it meanwhile
        LOG.debug("template %s stays in pool %s for %s", name, pool.name, clones or "a new clone")
        return None

    def _own_name(self, template: str) -> str:
        """One that this host alone uses, and _sweep() knows."""
        return f"{template}.{self._owner()}.{os.urandom(4).hex()}"

    def upload_template(self, template: Template) -> None:
        pool = self._pools.for_disk(Backend.RBD)
        if self._in_this_cluster(pool, template) is None:
            with self._locks.hold(f"rbd-template:{template.volume}"):
                self._ensure_template(pool, template)

    def freeze(self, disk: Disk) -> None:
        self.thaw(disk)
        rbd.create_snapshot(self._snapshot_of(disk))

    def thaw(self, disk: Disk) -> None:
        rbd.remove_snapshot(self._snapshot_of(disk))

    def _snapshot_of(self, disk: Disk) -> RbdSource:
        return _image(self._pools.ensure(disk.pool), disk.volume, FROZEN)

    def _is_local(self, disk: Disk) -> bool:
        return True  # as much as anywhere: the cluster is asked, and not the host

    def _layers(self, disk: Disk) -> Chain:
        return (Layer(source=self._snapshot_of(disk), format=disk.format),)

    def remove_link_snapshot(self, template: Template) -> None:
        """Take away the snapshot that clones were made from of a volume that is somebody else's.
        Those of other hosts keep it."""
        linked = template.link.rbd if template.link else None
        if linked is None or linked.snapshot:
            return
        mark = replace(linked, snapshot=COMPLETE)
        with rbd.holding_lock(mark.access, mark.image):
            if rbd.has_snapshot(mark) and not rbd.children(mark) and rbd.unprotect_snapshot(mark):
                rbd.remove_snapshot(mark)

    def _copy(self, disk: Disk, template: Template) -> None:
        pool = self._pools.ensure(disk.pool)
        if origin := self._in_this_cluster(pool, template):
            self._clone(disk, origin, template)
            return
        with self._locks.hold(f"rbd-template:{template.volume}"):
            uploaded = self._ensure_template(pool, template)
        pool.create_from(spec_of(disk), uploaded)
        LOG.info("made %s/%s, a clone of %s", disk.pool, disk.volume, uploaded.name)

    def _fill_from_file(self, disk: Disk, source: Layer, scratch: Path) -> None:
        pool = self._pools.ensure(disk.pool)
        pool.create(spec_of(disk))
        qemu_img.fill(_raw(_image(pool, disk.volume)), [source])

    def _in_this_cluster(self, pool: Pool, template: Template) -> RbdSource | None:
        """What disks can be cloned from without an upload. A volume gets a snapshot
        of ours: only those can be cloned."""
        linked = template.link.rbd if template.link else None
        if linked is None or rbd.cluster_id(linked.access) != rbd.cluster_id(_access(pool)):
            return None
        if linked.snapshot:
            return linked
        mark = replace(linked, snapshot=COMPLETE)
        _mark_complete(mark)
        return mark

    def _clone(self, disk: Disk, origin: RbdSource, template: Template) -> None:
        """libvirt clones within one pool only. It has made the volume and so knows of it; a pool
        is refreshed by opening every image in it. What lies behind the image in a longer volume is
        cut off before the disk grows."""
        pool = self._pools.ensure(disk.pool)
        pool.create(spec_of(disk))
        made = _image(pool, disk.volume)
        rbd.remove(made)
        rbd.clone(origin, made)
        rbd.resize(made, template.virtual_size)
        rbd.resize(made, disk.size)
        LOG.info("made %s/%s, a clone of %s", disk.pool, disk.volume, origin.name)

    def _ensure_template(self, pool: Pool, template: Template) -> Volume:
        """The template as an image of this pool, which another host may have uploaded."""
        if not is_complete(_access(pool), template.volume):
            complete = _image(pool, template.volume, COMPLETE)
            if rbd.has_snapshot(complete):
                _mark_complete(
                    complete
                )  # an older version was interrupted when it had unprotected it
            else:
                self._upload(pool, template)
        if found := pool.find(template.volume):
            return found
        pool.refresh()
        return pool.get(template.volume)

    def _upload(self, pool: Pool, template: Template) -> None:
        """Under a name of this host's own, so that nobody else touches it; it gets the template's
        name when it is complete, unless another host was quicker."""
        self._cleanup(pool, template.volume)
        part = self._own_name(template.volume)
        try:
            with self._source(template) as source:
                self._import(pool, part, source, template.virtual_size)
            with rbd.holding_lock(_access(pool), template.volume) as lease:
                renamed = rbd.rename(_image(pool, part), template.volume, lease)
            if not renamed:
                self._refuse_another(pool, template.volume, part)
        except BaseException:
            self._cleanup(pool, template.volume)
            raise
        if renamed:
            LOG.info("brought template %s into pool %s", template.volume, pool.name)
        else:
            _remove(pool, part)

    def _refuse_another(self, pool: Pool, name: str, part: str) -> None:
        """An image that has the template's name and its content, but not its mark, is what the
        interrupted removal of an older version left: it is marked again."""
        if is_complete(_access(pool), name):
            return
        found, ours = _image(pool, name), _image(pool, part)
        is_as_long = rbd.size(found) == rbd.size(ours)
        if not is_as_long or not qemu_img.is_same(_raw(found), _raw(ours)):
            raise VolumeExists(pool.name, name)
        _mark_complete(_image(pool, name, COMPLETE))

    def _cleanup(self, pool: Pool, template: str) -> None:
        """What attempts of ours left that failed or died: we hold the lock. Ceph refuses to remove
        what a process that died had open, for half a minute; the next attempt will."""
        ours = re.compile(re.escape(f"{template}.{self._owner()}.") + "[0-9a-f]{8}")
        for name in filter(ours.fullmatch, rbd.names(_access(pool))):
            with suppress(MillpondError):
                _remove(pool, name)

    @contextmanager
    def _source(self, template: Template) -> Iterator[Layer]:
        """Where its bytes can be read: they are fetched from a remote host."""
        if template.linked_layer:
            yield template.linked_layer
            return
        base = self._pools.base.get(template.volume)
        if self._can_open(base, os.R_OK):
            yield Layer(source=FileSource(path=base.path), format=template.format)
            return
        fetched = self._incoming / template.volume
        fetched.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.remove(fetched)  # of an attempt that was interrupted: we hold the lock
        try:
            download(self._pools.base, template.volume, fetched)
            yield Layer(source=FileSource(path=str(fetched)), format=template.format)
        finally:
            files.remove(fetched)

    def _import(self, pool: Pool, part: str, source: Layer, size: int) -> None:
        pool.create(VolumeSpec(name=part, format=DiskFormat.RAW, capacity=size))
        qemu_img.fill(_raw(_image(pool, part)), [source])
        complete = _image(pool, part, COMPLETE)
        rbd.create_snapshot(complete)
        rbd.protect_snapshot(complete)


def _image(pool: Pool, name: str, snapshot: str = "") -> RbdSource:
    return RbdSource(access=_access(pool), image=name, snapshot=snapshot)


def _raw(image: RbdSource) -> Layer:
    return Layer(source=image, format=DiskFormat.RAW)


def _access(pool: Pool) -> CephAccess:
    assert pool.ceph is not None  # only RBD pools are given to this backend
    return pool.ceph


def _mark_complete(complete: RbdSource) -> None:
    """Say of an image that all of its bytes are there; one that has the mark is no error."""
    if rbd.has_snapshot(complete, protected=True):
        return
    with rbd.holding_lock(complete.access, complete.image):
        if not rbd.has_snapshot(complete):
            rbd.create_snapshot(complete)
        if not rbd.has_snapshot(complete, protected=True):
            rbd.protect_snapshot(complete)


def _unprotect(complete: RbdSource) -> bool:
    """False while clones need it; one that is not protected is no error."""
    is_protected = rbd.has_snapshot(complete, protected=True)
    return not is_protected or rbd.unprotect_snapshot(complete)


def _remove(pool: Pool, name: str) -> None:
    """An image with its mark; one that is not there is no error."""
    complete = _image(pool, name, COMPLETE)
    _unprotect(complete)
    rbd.remove_snapshot(complete)
    rbd.remove(_image(pool, name))
    pool.refresh()
