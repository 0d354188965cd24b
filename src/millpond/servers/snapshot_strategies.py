"""How a server's root disk is kept as it is while it is copied, and the server goes on."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from millpond.disks.backend import SupportsSnapshots
from millpond.errors import (
    Busy,
    GuestWritesFaster,
    LibvirtFailed,
    NeedsHostFiles,
    NotWrittenBack,
    OverlayUnclear,
    StillNeeded,
    VolumeExists,
    VolumeNotFound,
    WrongState,
)
from millpond.hosts.host import Host
from millpond.libvirt.block_jobs import COPY
from millpond.libvirt.domains import ON
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, Layer, VolumeSource
from millpond.model.names import overlay_name, volume_name
from millpond.model.operation import (
    NativeSnapshotDetails,
    NotRunningDetails,
    OverlayDetails,
    SnapshotDetails,
)
from millpond.model.server import Disk, Server
from millpond.model.volume import VolumeSpec
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.system import files
from millpond.system.waiting import POLL
from millpond.xml.domain import BackingStoreXml, DiskXml, DomainXml, SourceXml

ROOT = "disk"
_STALLED = 60
"""Seconds in which what is to be written back has not become less: the guest writes as fast."""


class SnapshotStrategy(Protocol):
    """All of it may be called again after it was interrupted anywhere."""

    def prepare(self, server: Server) -> None: ...

    def begin(self, server: Server) -> None: ...

    def end(self, server: Server) -> None:
        """The server is on its disk again, and so is all that it wrote meanwhile."""
        ...

    def restore(self, server: Server) -> None:
        """The same after a failure, or in place of a process that died."""
        ...

    def cleanup(self, server: Server) -> None: ...


def plan_snapshot(host: Host, server: Server) -> SnapshotDetails | None:
    """How the disk is kept as it is, for the journal; None if nobody writes to it anyway, and
    nothing is left of an extraction that was interrupted."""
    disk = server.get_disk(ROOT)
    host.disks.exists(disk)  # a pool that cannot be used is an error before anything is begun
    if host.disks.native_snapshots(disk):
        return NativeSnapshotDetails()
    state = host.domains.state(server.id)
    if state not in ON:
        return NotRunningDetails() if host.disks.needs_temporary_volume(disk) else None
    pool = host.pools.for_disk(Backend.QCOW2, ROOT)
    volume = overlay_name(volume_name(server.id, ROOT))
    if pool.find(volume):  # somebody else's, and not to be removed with what is undone
        raise VolumeExists(pool.name, volume)
    overlay = VolumeSource(pool=pool.name, volume=volume)
    return OverlayDetails(overlay=overlay, state=state or "")


def strategy_for(host: Host, details: SnapshotDetails) -> SnapshotStrategy:
    match details:
        case OverlayDetails():
            return Overlay(host, details)
        case NotRunningDetails():
            return NotRunning()
    return NativeSnapshot(host)


def remove_overlay(host: Host, overlay: VolumeSource) -> None:
    """With all that its server wrote there: the server is deleted, too."""
    _delete(host.pools.ensure(overlay.pool), overlay.volume)


class NotRunning:
    """The server is off."""

    def prepare(self, server: Server) -> None:
        """It needs nothing."""

    begin = end = restore = cleanup = prepare


class NativeSnapshot:
    """The pool takes the snapshot itself."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def prepare(self, server: Server) -> None:
        """It needs nothing."""

    def begin(self, server: Server) -> None:
        disk = server.get_disk(ROOT)
        self._native_snapshots(disk).freeze(disk)

    def end(self, server: Server) -> None:
        disk = server.get_disk(ROOT)
        self._native_snapshots(disk).thaw(disk)

    restore = end

    def cleanup(self, server: Server) -> None:
        """It leaves nothing."""

    def _native_snapshots(self, disk: Disk) -> SupportsSnapshots:
        found = self._host.disks.native_snapshots(disk)
        assert found  # or the journal would name an overlay
        return found


class Overlay:
    """The server goes on in an overlay, which is written into the disk afterwards. The overlay's
    header names no backing file: what lies below it is said by the domain, and by us."""

    def __init__(self, host: Host, details: OverlayDetails, stalled: float = _STALLED) -> None:
        self._host = host
        self._details = details
        self._volume = details.overlay.volume
        self._stalled = stalled

    def prepare(self, server: Server) -> None:
        size = self._host.block_jobs.size(server.id, server.get_disk(ROOT).target)
        self._volumes().create(
            VolumeSpec(name=self._volume, format=DiskFormat.QCOW2, capacity=size)
        )

    def begin(self, server: Server) -> None:
        """The domain's copy of the record tells of it from before until after: who makes a lost
        state directory anew from the domains must not forget the overlay."""
        steps.write_metadata(self._host, server)
        target, overlay = server.get_disk(ROOT).target, self._volumes().get(self._volume)
        self._host.block_jobs.freeze(server.id, target, overlay.path)

    def end(self, server: Server) -> None:
        """From whatever there is: the server on the overlay or not, a commit under way, ready or
        failed, the server off."""
        self._describe(server)
        # This waits until libvirt has done what was asked by a process that died.
        steps.write_metadata(self._host, server)
        self._write_back(server)
        if self._volume in _names(self._describe(server, defined=True)):
            steps.define(self._host, server)
        if self._host.domains.is_stuck(server.id):  # the overlay's pool was full
            self._host.domains.resume(server.id)
        steps.write_metadata(self._host, without_operation(server))

    def restore(self, server: Server) -> None:
        """A process that died may have left the guest paused, for the moment of the pivot."""
        try:
            self.end(server)
        finally:
            if self._details.state == "running" and not self._details.merging:
                self._host.domains.resume(server.id)

    def cleanup(self, server: Server) -> None:
        """Removed only when no domain can come back to it: as long as it is named, it holds what
        the guest wrote."""
        for defined in (False, True):
            if self._volume in _names(self._describe(server, defined=defined)):
                raise StillNeeded(self._volume, server.name)
        overlay = self._volumes().find(self._volume)
        if overlay and self._is_open(server, overlay.path):
            raise StillNeeded(self._volume, server.name)
        _delete(self._volumes(), self._volume)

    def _is_open(self, server: Server, overlay: str) -> bool:
        """libvirt may have lost track of it. Where we see the domain's QEMU have its disk open, we
        would see that, too; on a remote host, and from another PID namespace, QEMU is asked."""
        if files.is_open(Path(overlay)):
            return True
        if self._host.domains.state(server.id) not in ON:
            return False
        disk = server.get_disk(ROOT)
        below = disk.path or self._host.pools.ensure(disk.pool).get(disk.volume).path
        if files.is_open(Path(below)):
            return False
        try:
            return overlay in self._host.block_jobs.files(server.id)
        except LibvirtFailed as error:
            raise OverlayUnclear(self._volume, server.name, error.detail) from error

    def _write_back(self, server: Server) -> None:
        begun = False
        waiting = _Waiting(self._stalled)
        while found := self._find_top(server):
            running, top = found
            if not running:
                self._merge(server, top)
            elif top.job is None:
                if begun:
                    raise NotWrittenBack(top.target)
                self._commit(server, top)
                begun = True
            elif top.job == COPY:
                raise Busy(f"disk {top.target} of server {server.name!r}")
            elif top.job_ready == "yes":
                self._pivot(server, top)
            else:
                waiting.look(self._host.block_jobs.remaining(server.id, top.target), top.target)
        if self._details.merging and self._host.domains.state(server.id) == "paused":
            self._host.domains.power_off(server.id)

    def _find_top(self, server: Server) -> tuple[bool, DiskXml] | None:
        """Whether the domain runs, and its disk; None if the overlay is not the top of that."""
        domain = self._describe(server)
        top = domain.disk(server.get_disk(ROOT).target)
        if top is None or _name(top.source) != self._volume:
            return None
        return domain.id is not None, top

    def _commit(self, server: Server, top: DiskXml) -> None:
        with self._host.domains.suppress_if_off(server.id):
            self._host.block_jobs.commit(server.id, top.target, _path(top))

    def _pivot(self, server: Server, top: DiskXml) -> None:
        """While the guest does nothing, disk and overlay hold the same. So whatever dies between
        QEMU's step and libvirt's note of it, it is right to write the overlay into the disk."""
        domains = self._host.domains
        with domains.suppress_if_off(server.id), domains.pause(server.id):
            self._host.block_jobs.pivot(server.id, top.target)

    def _merge(self, server: Server, top: DiskXml) -> None:
        """Of a server that is off. Libvirt merges only disks of a domain that runs: paused from
        its very beginning, its guest does nothing. That is written down first: who comes after a
        process that died must not let the guest go on."""
        disk = server.get_disk(ROOT)
        overlay = Layer(source=FileSource(path=_path(top)), format=DiskFormat.QCOW2)
        try:
            self._host.disks.merge(disk, overlay)
        except NeedsHostFiles:
            self._note_merging(server)
            self._host.domains.start(server.id, paused=True)
        else:
            steps.define(self._host, server)

    def _note_merging(self, server: Server) -> None:
        self._details = replace(self._details, merging=True)
        if server.operation:
            noted = replace(server, operation=replace(server.operation, details=self._details))
            self._host.records.put(noted)

    def _describe(self, server: Server, *, defined: bool = False) -> DomainXml:
        if found := self._host.domains.description(server.id, defined=defined):
            return found
        raise WrongState(server.name, "without a domain", "defined as it was")

    def _volumes(self) -> Pool:
        return self._host.pools.ensure(self._details.overlay.pool)


class _Waiting:
    """For a block job, as long as there is less and less to do."""

    def __init__(self, stalled: float) -> None:
        self._stalled = stalled
        self._least: int | None = None
        self._since = time.monotonic()

    def look(self, remaining: int, target: str) -> None:
        now = time.monotonic()
        if self._least is None or remaining < self._least:
            self._least, self._since = remaining, now
        elif now - self._since > self._stalled:
            raise GuestWritesFaster(target, self._stalled)
        time.sleep(POLL)


def _delete(pool: Pool, volume: str) -> None:
    with suppress(VolumeNotFound):
        pool.delete(volume)


def _names(domain: DomainXml) -> Iterator[str]:
    """Of every file in the disks of a domain, whichever layer it is."""
    for disk in domain.disks:
        layer: DiskXml | BackingStoreXml | None = disk
        while layer:
            yield _name(layer.source)
            layer = layer.backing if isinstance(layer, DiskXml) else layer.below


def _name(source: SourceXml | None) -> str:
    return Path(source.file).name if source and source.file else ""


def _path(disk: DiskXml) -> str:
    return (disk.source.file if disk.source else None) or ""
