"""A pool that libvirt manages."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tenacity

from millpond.errors import (
    LibvirtFailed,
    MillpondError,
    NeedsHostFiles,
    NoSpace,
    PoolBusy,
    PoolNotFound,
    PoolUnusable,
    Unsupported,
    VolumeExists,
    VolumeNotFound,
)
from millpond.libvirt.locality import Probe, probe
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.model.layer import CephAccess, RbdSource, Source, VolumeSource
from millpond.model.sizes import format_size
from millpond.model.volume import Clearing, ClearMethod, PoolUsage, Volume, VolumeSpec
from millpond.records.journal import undo_on_failure
from millpond.system import files, libvirtd, streams
from millpond.system.libvirtd import Libvirtd, create_validated, open_stream
from millpond.system.locks import Locks
from millpond.system.streams import PIECE, Piece
from millpond.xml.storage import VolumeXml

LOG = logging.getLogger(__name__)

REFRESH_PATIENCE = 60.0
"""Seconds that a refresh waits for volumes being built; a copy through libvirt may take longer,
but then somebody should know."""

_NO_SPACE = ("No space left", "insufficient free space")  # of the kernel, of LVM
_GONE_FROM_CEPH = "failed to open the RBD image"  # removed behind libvirt's back

_READ_ONLY = "0444"
_SHRED_PASSES = 3  # as many as Nova asks shred(1) for

_COMPAT = {"qcow2": "1.1"}  # libvirt's own default is 0.10, the format of 2008 (trap 7)


class LibvirtPool:
    """Knows its name, its type and its path; nothing of what is stored in it."""

    def __init__(
        self,
        host: Libvirtd,
        name: str,
        path: str,
        locks: Locks,
        type_: PoolType = PoolType.DIR,
        ceph: CephAccess | None = None,
        clearing: Clearing | None = None,
        probe: Probe = probe,
    ) -> None:
        self.name = name
        self.path = path
        self.ceph = ceph
        self.location = f"Ceph pool {ceph.pool}" if ceph else path  # in words
        self.capabilities = CAPABILITIES[type_]
        self._host = host
        self._locks = locks
        self._clearing = clearing or Clearing()
        self._probe = probe
        self._fell = False

    @property
    def local(self) -> bool:
        return self._probe(self)

    def find(self, name: str) -> Volume | None:
        try:
            with self._calling(f"looking up volume {name}") as pool:
                return self._volume(pool.storageVolLookupByName(name).XMLDesc(0))
        except LibvirtFailed as error:
            if _is_gone(error):
                return None
            raise

    def get(self, name: str) -> Volume:
        if volume := self.find(name):
            return volume
        raise VolumeNotFound(self.name, name)

    def volumes(self) -> list[Volume]:
        with self._calling("listing its volumes") as pool:
            handles = pool.listAllVolumes(0)
        return [volume for handle in handles if (volume := self._describe(handle))]

    def names(self) -> list[str]:
        with self._calling("listing its volumes") as pool:
            return sorted(pool.listVolumes())

    def source(self, name: str) -> Source:
        if self.capabilities.volume_disks or not self.ceph:
            return VolumeSource(pool=self.name, volume=name)
        self.get(name)  # a cluster that does not answer is an error now; QEMU waits for minutes
        return RbdSource(access=self.ceph, image=name)

    def create(self, spec: VolumeSpec) -> Volume:
        self.capabilities.refuse(spec, self.name)
        xml = self._volume_xml(spec)
        with self._creating(spec, "making") as pool, undo_on_failure() as undo:
            made = create_validated(lambda flags: pool.createXML(xml, flags))
            if not self.capabilities.sparse:
                undo.callback(made.delete, 0)
                made.wipe(0)
            return self._volume(made.XMLDesc(0))

    def create_from(self, spec: VolumeSpec, source: Volume) -> Volume:
        self.capabilities.refuse(spec, self.name)
        self.capabilities.refuse_source(source, self.name)
        xml = self._volume_xml(spec)
        with self._creating(spec, f"copying {source.name} to") as pool, undo_on_failure() as undo:
            origin = pool.connect().storagePoolLookupByName(source.pool)
            handle = origin.storageVolLookupByName(source.name)
            made = create_validated(lambda flags: pool.createXMLFrom(xml, handle, flags))
            copy = self._volume(made.XMLDesc(0))
            if not self.capabilities.sparse:
                undo.callback(made.delete, 0)
                _wipe_behind(made, source.capacity, copy.capacity)
        if copy.capacity < spec.capacity:  # it follows the source, not <capacity> (trap 6)
            self.resize(spec.name, spec.capacity)
            return self.get(spec.name)
        return copy

    def resize(self, name: str, capacity: int) -> None:
        volume = self.get(name)
        if not self.capabilities.grows:
            raise Unsupported(
                f"growing volume {name}", f"pool {self.name} cannot do it by libvirt"
            )
        if capacity < volume.capacity:
            raise Unsupported(
                f"making volume {name} smaller",
                f"it has {format_size(volume.capacity)} and would lose what lies behind "
                f"{format_size(capacity)}",
            )
        # libvirt calls it shrinking if it is less than what the volume takes, and a small RBD
        # image takes a whole object.
        wanted = max(capacity, volume.allocation)
        with self._calling(f"growing volume {name}") as pool:
            pool.storageVolLookupByName(name).resize(wanted, 0)

    def upload(self, name: str, content: bytes) -> None:
        with self._writing(name, len(content)) as pool, open_stream(pool) as stream:
            pool.storageVolLookupByName(name).upload(stream, 0, len(content), 0)
            for start in range(0, len(content), PIECE):
                stream.send(content[start : start + PIECE])
            stream.finish()

    def send(self, name: str, pieces: Iterable[Piece], length: int) -> None:
        flags = self._sparsely(libvirtd.UPLOAD_SPARSE)
        with self._writing(name, length) as pool, open_stream(pool) as stream:
            pool.storageVolLookupByName(name).upload(stream, 0, length, flags)
            streams.send(stream, pieces, sparse=self.capabilities.sparse)

    def pieces(self, name: str) -> Iterator[Piece]:
        sparse = self.capabilities.sparse
        flags = self._sparsely(libvirtd.DOWNLOAD_SPARSE)
        try:
            with (
                self._calling(f"reading volume {name}", slow=True) as pool,
                open_stream(pool) as stream,
            ):
                pool.storageVolLookupByName(name).download(stream, 0, 0, flags)
                yield from streams.receive(stream, sparse=sparse)
        except LibvirtFailed as error:
            if _is_gone(error):
                raise VolumeNotFound(self.name, name) from error
            raise

    def delete(self, name: str) -> None:
        try:
            self._delete(name)
        except LibvirtFailed as error:
            if error.code == libvirtd.NO_SUCH_VOLUME or "Failed to find logical" in error.detail:
                raise VolumeNotFound(self.name, name) from error
            if "Not a directory" not in error.detail:
                raise
            self._remove_file(name)
            self._delete(name)

    def refresh(self) -> None:
        with self._locks.hold(f"pool-refresh:{self.name}"):
            try:
                self._refresh_patiently()
            except LibvirtFailed as error:
                self._start_again(error)

    def usage(self) -> PoolUsage:
        if self.capabilities is CAPABILITIES[PoolType.DIR] and self.local:
            return files.usage(Path(self.path))  # libvirt counts what is kept for root, too
        with self._calling("asking how full it is") as pool:
            _state, capacity, allocation, available = pool.info()
        return PoolUsage(capacity=capacity, allocation=allocation, available=available)

    def _delete(self, name: str) -> None:
        if not self.capabilities.sparse:
            self._clear(name)
        with self._calling(f"deleting volume {name}") as pool:
            pool.storageVolLookupByName(name).delete(0)

    def _clear(self, name: str) -> None:
        """Before it is deleted, and once more if that was interrupted: others who get its extents
        may not wipe what they get. One that is gone behind libvirt's back is deleted as such."""
        try:
            with self._calling(f"wiping volume {name}", slow=True) as pool:
                _overwrite(pool.storageVolLookupByName(name), self._clearing)
        except LibvirtFailed as error:
            if "No such file or directory" not in error.detail:
                raise

    def _remove_file(self, name: str) -> None:
        """libvirt takes a file for a directory of ploop's if its bytes say so, be it that we made
        it so or that a guest wrote it, and cannot delete it. One that is gone, it can."""
        path = self.get(name).path
        if not self.local:  # there may be a file of this name here, too
            reason = "libvirt takes it for a directory"
            raise NeedsHostFiles(f"deleting volume {name}", reason, path)
        os.unlink(path)

    def _refresh_patiently(self) -> None:
        try:
            for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception(_is_busy),
                wait=tenacity.wait_random_exponential(multiplier=0.02, max=1),
                stop=tenacity.stop_after_delay(REFRESH_PATIENCE),
                reraise=True,
            ):
                with attempt, self._calling("refreshing", slow=True) as pool:
                    pool.refresh(0)
        except LibvirtFailed as error:
            if _is_busy(error):
                raise PoolBusy(self.name) from error
            raise

    def _start_again(self, cause: LibvirtFailed) -> None:
        """A refresh that failed for another reason left the pool inactive (trap 9)."""
        self._fell = True
        try:
            with self._calling("starting it again"):
                LOG.info("pool %s fell inactive and was started again", self.name)
        except LibvirtFailed as error:
            raise PoolUnusable(self.name, cause.detail) from error

    @contextmanager
    def _calling(self, doing: str, *, slow: bool = False) -> Iterator[Any]:
        try:
            with self._host.calling(f"{doing} in pool {self.name}", slow=slow) as connection:
                yield self._pool(connection)
        except LibvirtFailed as error:
            if error.code == libvirtd.NO_SUCH_POOL:
                raise PoolNotFound(self.name) from error
            raise

    @contextmanager
    def _creating(self, spec: VolumeSpec, doing: str) -> Iterator[Any]:
        try:
            with self._calling(f"{doing} volume {spec.name}", slow=True) as pool:
                yield pool
        except LibvirtFailed as error:
            raise self._explain(error, spec) from error

    @contextmanager
    def _writing(self, name: str, size: int) -> Iterator[Any]:
        if not self.capabilities.uploads:
            raise Unsupported(f"writing to volume {name}", f"pool {self.name} takes no uploads")
        try:
            with self._calling(f"writing to volume {name}", slow=True) as pool:
                yield pool
        except LibvirtFailed as error:
            raise self._explain_lack(error, size) or error from error

    def _sparsely(self, flag: int) -> int:
        return flag if self.capabilities.sparse else 0

    def _pool(self, connection: libvirtd.Connection) -> Any:
        """libvirt does not start pools in a cluster when it is restarted (docs/facts.md)."""
        pool = connection.storagePoolLookupByName(self.name)
        if self._fell or self.capabilities.remote:
            libvirtd.start_pool(pool)
        self._fell = False
        return pool

    def _explain(self, error: LibvirtFailed, spec: VolumeSpec) -> MillpondError:
        if error.code == libvirtd.VOLUME_EXISTS or "already in use" in error.detail:
            return VolumeExists(self.name, spec.name)
        if lack := self._explain_lack(error, spec.capacity):
            return lack
        if self.ceph:
            return self._explain_by_ceph(error, spec)
        if "No such file or directory" in error.detail and self.path in error.detail:
            return PoolUnusable(self.name, f"its directory {self.path} is missing")
        return error

    def _explain_lack(self, error: LibvirtFailed, needed: int) -> NoSpace | None:
        if not any(words in error.detail for words in _NO_SPACE):
            return None
        with self._calling("asking how full it is") as pool:  # perhaps while it is probed
            free = format_size(pool.info()[3])
        return NoSpace(f"pool {self.name} ({self.location})", format_size(needed), free)

    def _explain_by_ceph(self, error: LibvirtFailed, spec: VolumeSpec) -> MillpondError:
        """libvirt says "No such file or directory" whatever happened. Another host may have made
        an image of this name since we last looked."""
        self.refresh()
        return VolumeExists(self.name, spec.name) if self.find(spec.name) else error

    def _volume_xml(self, spec: VolumeSpec) -> str:
        """<allocation> is stated where a volume can be sparse: left out, all of it would be
        allocated (trap 7). LVM would make a snapshot of it that breaks when it is full."""
        return VolumeXml(
            name=spec.name,
            capacity=spec.capacity,
            allocation=0 if self.capabilities.sparse else None,
            format=spec.format if self.capabilities.sparse else None,
            compat=_COMPAT.get(spec.format),
            mode=_READ_ONLY if spec.read_only else "0600",
            backing_path=spec.backing.path if spec.backing else None,
            backing_format=spec.backing.format if spec.backing else None,
        ).to_xml()

    def _describe(self, handle: Any) -> Volume | None:
        """None for a volume that was deleted while we were listing."""
        try:
            with self._host.calling(f"reading a volume of pool {self.name}"):
                return self._volume(handle.XMLDesc(0))
        except LibvirtFailed as error:
            if _is_gone(error):
                return None
            raise

    def _volume(self, xml: str) -> Volume:
        parsed = VolumeXml.from_xml(xml)
        return Volume(
            pool=self.name,
            name=parsed.name,
            path=parsed.path or "",
            capacity=parsed.capacity,
            allocation=parsed.allocation or 0,
            length=parsed.physical or parsed.capacity,
            changed=parsed.changed,
            read_only=parsed.mode == _READ_ONLY,
            backing_path=parsed.backing_path,
            reported_format=parsed.format,
        )


def _is_gone(error: LibvirtFailed) -> bool:
    return error.code == libvirtd.NO_SUCH_VOLUME or _GONE_FROM_CEPH in error.detail


def _is_busy(error: BaseException) -> bool:
    return (
        isinstance(error, LibvirtFailed)
        and error.code == libvirtd.POOL_BUSY
        and "asynchronous jobs" in error.detail
    )


def _overwrite(handle: Any, clearing: Clearing) -> None:
    capacity = handle.info()[1]
    end = min(clearing.size or capacity, capacity)
    match clearing.method:
        case ClearMethod.ZERO if end == capacity:
            handle.wipe(0)
        case ClearMethod.ZERO:
            _write(handle, 0, end, bytes)
        case ClearMethod.SHRED:
            for _ in range(_SHRED_PASSES):
                _write(handle, 0, end, os.urandom)


def _wipe_behind(handle: Any, start: int, end: int) -> None:
    """Zeros from where the copied bytes end: what was there is another server's."""
    if start < end:
        _write(handle, start, end, bytes)


def _write(handle: Any, start: int, end: int, content: Callable[[int], bytes]) -> None:
    with open_stream(handle) as stream:
        handle.upload(stream, start, end - start, 0)
        for at in range(start, end, PIECE):
            stream.send(content(min(PIECE, end - at)))
        stream.finish()
