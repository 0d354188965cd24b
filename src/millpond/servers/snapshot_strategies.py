"""How a server's disks are kept as they are while they are copied, and the server goes on."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Protocol

from millpond.disks.backend import SupportsSnapshots
from millpond.errors import (
    Busy,
    GuestWritesFaster,
    LibvirtFailed,
    NeedsHostFiles,
    NotQuiesced,
    NotWrittenBack,
    OverlayUnclear,
    StillNeeded,
    VolumeExists,
    VolumeNotFound,
    WrongState,
)
from millpond.hosts.host import Host
from millpond.libvirt.block_jobs import COPY
from millpond.libvirt.domains import ON, pausing, suppress_if_off
from millpond.libvirt.guest_filesystems import has_agent
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, Layer, VolumeSource
from millpond.model.names import overlay_name, volume_name
from millpond.model.operation import (
    ROOT,
    NativeSnapshotDetails,
    NotRunningDetails,
    OverlayDetails,
    SnapshotDetails,
)
from millpond.model.server import Content, Disk, Server
from millpond.model.volume import Volume, VolumeSpec
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.system import files
from millpond.system.waiting import POLL
from millpond.xml.domain import BackingStoreXml, DiskXml, DomainXml, SourceXml

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


def plan_snapshot(
    host: Host, server: Server, disks: Sequence[Disk] = (), *, quiesce: bool | None = None
) -> SnapshotDetails | None:
    """How its disks, the root disk unless others are said, are kept as they are, for the journal;
    None if nobody writes to them anyway, and an extraction that is interrupted leaves nothing.
    ``quiesce`` insists that a guest agent freezes the file systems, or that it is not asked."""
    disks = disks or (server.get_disk(ROOT),)
    for disk in disks:
        host.disks.exists(disk)  # a pool that cannot be used is an error before anything is begun
    native = [disk for disk in disks if host.disks.native_snapshots(disk)]
    written = [disk for disk in disks if disk not in native and _is_written(disk)]
    state = host.domains.state(server.id)
    details = SnapshotDetails(
        roles=tuple(disk.role for disk in disks),
        state=(state or "") if state in ON else "",
        quiesces=_asks_agent(host, server, state, quiesce),
    )
    stated = {each.name: getattr(details, each.name) for each in fields(details)}
    if written and state in ON:
        overlays = {disk.role: _plan_overlay(host, server, disk) for disk in written}
        return OverlayDetails(**stated, overlays=overlays)
    if native:
        return NativeSnapshotDetails(**stated)
    needs_volume = any(host.disks.needs_temporary_volume(disk) for disk in disks)
    return NotRunningDetails(**stated) if needs_volume else None


def _is_written(disk: Disk) -> bool:
    """By a guest that runs."""
    return disk.is_attached and disk.content is not Content.CONFIG


def _asks_agent(host: Host, server: Server, state: str | None, quiesce: bool | None) -> bool:
    if quiesce is False or state not in ON:
        return False
    if state != "running":
        if quiesce:
            raise NotQuiesced(server.name, f"it is {state}")
        return False
    domain = host.domains.description(server.id)
    found = domain is not None and has_agent(domain)
    if quiesce and not found:
        raise NotQuiesced(server.name, "no guest agent has opened its channel")
    return found


def _plan_overlay(host: Host, server: Server, disk: Disk) -> VolumeSource:
    pool = host.pools.for_disk(Backend.QCOW2, disk.role)
    volume = overlay_name(volume_name(server.id, disk.role))
    if pool.find(volume):  # somebody else's, and not to be removed with what is undone
        raise VolumeExists(pool.name, volume)
    return VolumeSource(pool=pool.name, volume=volume)


def strategy_for(host: Host, details: SnapshotDetails) -> SnapshotStrategy:
    match details:
        case OverlayDetails():
            return Overlay(host, details)
        case NotRunningDetails():
            return NotRunning()
    return NativeSnapshot(host, details)


def remove_overlay(host: Host, overlay: VolumeSource) -> None:
    """With all that its server wrote there: the server is deleted, too."""
    _delete(host.pools.ensure(overlay.pool), overlay.volume)


class NotRunning:
    """Nobody writes."""

    def prepare(self, server: Server) -> None:
        """It needs nothing."""

    begin = end = restore = cleanup = prepare


class NativeSnapshot:
    """The pools take the snapshots themselves."""

    def __init__(self, host: Host, details: SnapshotDetails) -> None:
        self._host = host
        self._details = details

    def prepare(self, server: Server) -> None:
        """It needs nothing."""

    def begin(self, server: Server) -> None:
        """Of several disks while the guest does nothing: all of one moment."""
        found = self.find(server)
        several = len(found) > 1 and self._details.state
        with pausing(self._host.domains, server.id) if several else nullcontext():
            self.freeze(server)

    def end(self, server: Server) -> None:
        for disk, pool in self.find(server):
            pool.thaw(disk)

    def restore(self, server: Server) -> None:
        """A process that died may have left the guest paused."""
        try:
            self.end(server)
        finally:
            if self._details.state == "running":
                self._host.domains.resume(server.id)

    def cleanup(self, server: Server) -> None:
        """It leaves nothing."""

    def freeze(self, server: Server) -> None:
        for disk, pool in self.find(server):
            pool.freeze(disk)

    def find(self, server: Server) -> list[tuple[Disk, SupportsSnapshots]]:
        """Those that can, of the disks that are copied."""
        disks = (server.get_disk(role) for role in self._details.roles)
        pools = ((disk, self._host.disks.native_snapshots(disk)) for disk in disks)
        return [(disk, pool) for disk, pool in pools if pool]


class Overlay:
    """The server goes on in overlays, which are written into the disks afterwards. An overlay's
    header names no backing file: what lies below it is said by the domain, and by us."""

    def __init__(self, host: Host, details: OverlayDetails, stalled: float = _STALLED) -> None:
        self._host = host
        self._details = details
        self._native = NativeSnapshot(host, details)
        self._stalled = stalled

    def prepare(self, server: Server) -> None:
        for role, overlay in self._details.overlays.items():
            size = self._host.block_jobs.size(server.id, server.get_disk(role).target)
            spec = VolumeSpec(name=overlay.volume, format=DiskFormat.QCOW2, capacity=size)
            self._pool(overlay).create(spec)

    def begin(self, server: Server) -> None:
        """The domain's copy of the record tells of it from before until after: who rebuilds a
        lost state directory from the domains must not forget the overlays."""
        steps.write_metadata(self._host, server)
        paths = {
            server.get_disk(role).target: self._pool(overlay).get(overlay.volume).path
            for role, overlay in self._details.overlays.items()
        }
        mixed = bool(self._native.find(server))
        with pausing(self._host.domains, server.id) if mixed else nullcontext():
            self._native.freeze(server)
            self._host.block_jobs.freeze(server.id, paths)

    def end(self, server: Server) -> None:
        """From whatever there is: the server on the overlays or not, a commit under way, ready or
        failed, the server off."""
        self._native.end(server)
        self._describe(server)
        # This waits until libvirt has done what was asked by a process that died.
        steps.write_metadata(self._host, server)
        self._write_back(server)
        own = {each.volume for each in server.disks if not each.path}  # named by their paths
        if (self._volumes | own) & set(_names(self._describe(server, defined=True))):
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
            named = self._volumes & set(_names(self._describe(server, defined=defined)))
            if named:
                raise StillNeeded(min(named), server.name)
        for role, overlay in self._details.overlays.items():
            found = self._pool(overlay).find(overlay.volume)
            if found and self._is_open(server, server.get_disk(role), found):
                raise StillNeeded(overlay.volume, server.name)
            _delete(self._pool(overlay), overlay.volume)

    def _is_open(self, server: Server, disk: Disk, overlay: Volume) -> bool:
        """libvirt may have lost track of it. Where we see the domain's QEMU have its disk open, we
        would see that, too; on a remote host, and from another PID namespace, QEMU is asked."""
        if files.is_open(Path(overlay.path)):
            return True
        if self._host.domains.state(server.id) not in ON:
            return False
        below = disk.path or self._host.pools.ensure(disk.pool).get(disk.volume).path
        if files.is_open(Path(below)):
            return False
        try:
            return overlay.path in self._host.block_jobs.files(server.id)
        except LibvirtFailed as error:
            raise OverlayUnclear(overlay.name, server.name, error.detail) from error

    def _write_back(self, server: Server) -> None:
        commits: dict[str, _Commit] = {}
        while tops := self._find_tops(server):
            if not self._is_on(server):
                self._merge(server, tops)
                continue
            for target, top in tops.items():
                self._advance(server, top, commits.setdefault(target, _Commit(self._stalled)))
        if self._details.merging and self._host.domains.state(server.id) == "paused":
            self._host.domains.power_off(server.id)

    def _advance(self, server: Server, top: DiskXml, commit: "_Commit") -> None:
        """One step of writing an overlay into its disk, while the server runs."""
        if top.job is None:
            if commit.begun:
                raise NotWrittenBack(top.target)
            self._commit(server, top)
            commit.begun = True
        elif top.job == COPY:
            raise Busy(f"disk {top.target} of server {server.name!r}")
        elif top.job_ready == "yes":
            self._pivot(server, top)
        else:
            commit.look(self._host.block_jobs.remaining(server.id, top.target), top.target)

    def _is_on(self, server: Server) -> bool:
        return self._describe(server).id is not None

    def _find_tops(self, server: Server) -> dict[str, DiskXml]:
        """The disks of the domain, by their targets, of which an overlay is the top."""
        domain = self._describe(server)
        disks = (domain.disk(server.get_disk(role).target) for role in self._details.overlays)
        return {
            each.target: each for each in disks if each and _name(each.source) in self._volumes
        }

    def _commit(self, server: Server, top: DiskXml) -> None:
        with suppress_if_off(self._host.domains, server.id):
            self._host.block_jobs.commit(server.id, top.target, _path(top))

    def _pivot(self, server: Server, top: DiskXml) -> None:
        """While the guest does nothing, disk and overlay hold the same. So whatever dies between
        QEMU's step and libvirt's note of it, it is right to write the overlay into the disk."""
        domains = self._host.domains
        with suppress_if_off(domains, server.id), pausing(domains, server.id):
            self._host.block_jobs.pivot(server.id, top.target)

    def _merge(self, server: Server, tops: Mapping[str, DiskXml]) -> None:
        """Of a server that is off: all of them, and then it is defined without them. Libvirt
        merges only disks of a domain that runs: paused from its very beginning, its guest does
        nothing. That is written down first: who comes after a process that died must not let the
        guest go on."""
        try:
            for target, top in tops.items():
                overlay = Layer(source=FileSource(path=_path(top)), format=DiskFormat.QCOW2)
                self._host.disks.merge(server.get_disk(target), overlay)
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

    @property
    def _volumes(self) -> set[str]:
        return {each.volume for each in self._details.overlays.values()}

    def _pool(self, overlay: VolumeSource) -> Pool:
        return self._host.pools.ensure(overlay.pool)


class _Commit:
    """A block job, waited for as long as there is less and less to do."""

    def __init__(self, stalled: float) -> None:
        self.begun = False
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
