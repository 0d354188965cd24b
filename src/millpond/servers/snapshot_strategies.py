"""How a server's disks are kept as they are while they are copied, and the server goes on."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from typing import Protocol

from millpond.disks.backend import SupportsSnapshots
from millpond.errors import (
    NeedsHostFiles,
    NotQuiesced,
)
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON, pausing
from millpond.libvirt.guest_filesystems import has_agent
from millpond.model.names import overlay_name
from millpond.model.operation import (
    ROOT,
    NativeSnapshotDetails,
    NotRunningDetails,
    OverlayDetails,
    SnapshotDetails,
)
from millpond.model.server import Content, Disk, Server
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.servers.overlays import (
    STALLED,
    BlockJob,
    OverlaidDisks,
    names_in,
    path_of,
    plan_overlay,
    remove_overlays,
)
from millpond.xml.domain import DiskXml


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
        overlays = {disk.role: plan_overlay(host, server, disk, overlay_name) for disk in written}
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


def strategy_for(host: Host, details: SnapshotDetails) -> SnapshotStrategy:
    match details:
        case OverlayDetails():
            return Overlay(host, details)
        case NotRunningDetails():
            return NotRunning()
    return NativeSnapshot(host, details)


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
    """The server goes on in overlays, which are written into the disks afterwards."""

    def __init__(self, host: Host, details: OverlayDetails, stalled: float = STALLED) -> None:
        self._host = host
        self._details = details
        self._native = NativeSnapshot(host, details)
        self._overlaid = OverlaidDisks(host, details.overlays)
        self._stalled = stalled

    def prepare(self, server: Server) -> None:
        self._overlaid.create(server)

    def begin(self, server: Server) -> None:
        """The domain's copy of the record tells of it from before until after: who rebuilds a
        lost state directory from the domains must not forget the overlays."""
        steps.write_metadata(self._host, server)
        mixed = bool(self._native.find(server))
        with pausing(self._host.domains, server.id) if mixed else nullcontext():
            self._native.freeze(server)
            self._overlaid.freeze(server)

    def end(self, server: Server) -> None:
        """From whatever there is: the server on the overlays or not, a commit under way, ready or
        failed, the server off."""
        self._native.end(server)
        self._overlaid.describe(server)
        # This waits until libvirt has done what was asked by a process that died.
        steps.write_metadata(self._host, server)
        self._write_back(server)
        own = {each.volume for each in server.disks if not each.path}  # named by their paths
        defined = self._overlaid.describe(server, defined=True)
        if (self._overlaid.volumes | own) & set(names_in(defined)):
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
        remove_overlays(server, self._overlaid)

    def _write_back(self, server: Server) -> None:
        jobs: dict[str, BlockJob] = {}
        while tops := self._overlaid.find_tops(server):
            if not self._overlaid.is_on(server):
                self._merge(server, tops)
                continue
            for target, top in tops.items():
                job = jobs.setdefault(target, BlockJob(self._host, self._stalled))
                job.advance(server, top, partial(self._commit, server, top))
        if self._details.merging and self._host.domains.state(server.id) == "paused":
            self._host.domains.power_off(server.id)

    def _commit(self, server: Server, top: DiskXml) -> None:
        self._host.block_jobs.commit(server.id, top.target, path_of(top))

    def _merge(self, server: Server, tops: Mapping[str, DiskXml]) -> None:
        """On a remote host libvirt merges only disks of a domain that runs: paused from its very
        beginning, its guest does nothing. That is written down first: who comes after a process
        that died must not let the guest go on."""
        try:
            self._overlaid.merge(server, tops)
        except NeedsHostFiles:
            self._note_merging(server)
            self._host.domains.start(server.id, paused=True)

    def _note_merging(self, server: Server) -> None:
        self._details = replace(self._details, merging=True)
        if server.operation:
            noted = replace(server, operation=replace(server.operation, details=self._details))
            self._host.records.put(noted)
