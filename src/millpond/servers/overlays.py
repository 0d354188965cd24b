"""Overlays above the disks of a server: put there for a while, written into the disks, removed.

An overlay's header names no backing file: what lies below it is said by the domain, and by us.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import (
    Busy,
    GuestWritesFaster,
    LibvirtFailed,
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
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, Layer, VolumeSource
from millpond.model.names import volume_name
from millpond.model.operation import Overlays
from millpond.model.server import Disk, Server
from millpond.model.volume import Volume, VolumeSpec
from millpond.servers import steps
from millpond.system import files
from millpond.system.waiting import POLL
from millpond.xml.domain import BackingStoreXml, DiskXml, DomainXml, SourceXml

STALLED = 60
"""Seconds in which what is to be written has not become less: the guest writes as fast."""


def plan_overlay(
    host: Host, server: Server, disk: Disk, name: Callable[[str], str]
) -> VolumeSource:
    pool = host.pools.for_disk(Backend.QCOW2, disk.role)
    volume = name(volume_name(server.id, disk.role))
    if pool.find(volume):  # somebody else's, and not to be removed with what is undone
        raise VolumeExists(pool.name, volume)
    return VolumeSource(pool=pool.name, volume=volume)


def remove_overlay(host: Host, overlay: VolumeSource) -> None:
    """With all that its server wrote there: the server is deleted, too."""
    with suppress(VolumeNotFound):
        host.pools.ensure(overlay.pool).delete(overlay.volume)


@dataclass(frozen=True, slots=True)
class OverlaidDisks:
    """The overlays of one server, by the roles of the disks that they belong to."""

    host: Host
    overlays: Overlays

    @property
    def volumes(self) -> set[str]:
        return {each.volume for each in self.overlays.values()}

    def create(self, server: Server) -> None:
        """Empty, and as large as the guest sees its disks."""
        for role, overlay in self.overlays.items():
            size = self.host.block_jobs.size(server.id, server.get_disk(role).target)
            spec = VolumeSpec(name=overlay.volume, format=DiskFormat.QCOW2, capacity=size)
            self._pool(overlay).create(spec)

    def freeze(self, server: Server) -> None:
        """The guest goes on in them, above its disks."""
        paths = {server.get_disk(role).target: self.path(role) for role in self.overlays}
        self.host.block_jobs.freeze(server.id, paths)

    def path(self, role: str) -> str:
        overlay = self.overlays[role]
        return self._pool(overlay).get(overlay.volume).path

    def find_tops(self, server: Server) -> dict[str, DiskXml]:
        """The disks of the domain, by their targets, of which one of them is the top."""
        domain = self.describe(server)
        disks = (domain.disk(server.get_disk(role).target) for role in self.overlays)
        return {
            each.target: each for each in disks if each and name_of(each.source) in self.volumes
        }

    def is_on(self, server: Server) -> bool:
        return self.describe(server).id is not None

    def describe(self, server: Server, *, defined: bool = False) -> DomainXml:
        if found := self.host.domains.description(server.id, defined=defined):
            return found
        raise WrongState(server.name, "without a domain", "defined as it was")

    def merge(self, server: Server, tops: Mapping[str, DiskXml]) -> None:
        """Of a server that is off: all of them, and then it is defined without them. Raises
        NeedsHostFiles where QEMU alone can do that."""
        for target, top in tops.items():
            overlay = Layer(source=FileSource(path=path_of(top)), format=DiskFormat.QCOW2)
            self.host.disks.merge(server.get_disk(target), overlay)
        steps.define(self.host, server)

    def _pool(self, overlay: VolumeSource) -> Pool:
        return self.host.pools.ensure(overlay.pool)


def remove_overlays(server: Server, *overlaid: OverlaidDisks) -> None:
    """Only when no domain can come back to them: as long as one is named, it holds what the guest
    wrote."""
    volumes = set[str]().union(*(each.volumes for each in overlaid))
    for defined in (False, True):
        named = volumes & set(names_in(overlaid[0].describe(server, defined=defined)))
        if named:
            raise StillNeeded(min(named), server.name)
    host = overlaid[0].host
    found = [
        (server.get_disk(role), volume)
        for each in overlaid
        for role, at in each.overlays.items()
        if (volume := host.pools.ensure(at.pool).find(at.volume))
    ]
    _refuse_open(host, server, found)
    for each in overlaid:
        for overlay in each.overlays.values():
            remove_overlay(host, overlay)


def _refuse_open(host: Host, server: Server, found: Sequence[tuple[Disk, Volume]]) -> None:
    """libvirt may have lost track of one. Where we see the domain's QEMU have its disk open, we
    would see that, too; on a remote host, and from another PID namespace, QEMU is asked."""
    is_on = bool(found) and host.domains.state(server.id) in ON
    below = {disk.role: Path(_path_below(host, disk)) for disk, _ in found if is_on}
    seen = files.find_open([*below.values(), *(Path(each.path) for _, each in found)])
    for disk, overlay in found:
        if Path(overlay.path) in seen:
            raise StillNeeded(overlay.name, server.name)
        if not is_on or below[disk.role] in seen:
            continue
        try:
            opened = host.block_jobs.files(server.id)
        except LibvirtFailed as error:
            raise OverlayUnclear(overlay.name, server.name, error.detail) from error
        if overlay.path in opened:
            raise StillNeeded(overlay.name, server.name)


def _path_below(host: Host, disk: Disk) -> str:
    return disk.path or host.pools.ensure(disk.pool).get(disk.volume).path


class BlockJob:
    """One that puts another layer on top of a disk: begun, waited for as long as there is less
    and less to do, and ended by the guest going on there."""

    def __init__(self, host: Host, stalled: float = STALLED) -> None:
        self._host = host
        self._stalled = stalled
        self._begun = False
        self._least: int | None = None
        self._since = time.monotonic()

    def advance(
        self, server: Server, top: DiskXml, begin: Callable[[], None], *, copies: bool = False
    ) -> None:
        """One step of it, while the server runs. Another kind of job is somebody else's."""
        if top.job is None:
            if self._begun:
                raise NotWrittenBack(top.target)
            with suppress_if_off(self._host.domains, server.id):
                begin()
            self._begun = True
        elif (top.job == COPY) is not copies:
            raise Busy(f"disk {top.target} of server {server.name!r}")
        elif top.job_ready == "yes":
            self._pivot(server, top)
        else:
            self._wait(self._host.block_jobs.remaining(server.id, top.target), top.target)

    def _pivot(self, server: Server, top: DiskXml) -> None:
        """While the guest does nothing, both layers hold the same. So whatever dies between
        QEMU's step and libvirt's note of it, it is right to use what libvirt names."""
        domains = self._host.domains
        with suppress_if_off(domains, server.id), pausing(domains, server.id):
            self._host.block_jobs.pivot(server.id, top.target)

    def _wait(self, remaining: int, target: str) -> None:
        now = time.monotonic()
        if self._least is None or remaining < self._least:
            self._least, self._since = remaining, now
        elif now - self._since > self._stalled:
            raise GuestWritesFaster(target, self._stalled)
        time.sleep(POLL)


def names_in(domain: DomainXml) -> Iterator[str]:
    """Of every file in the disks of a domain, whichever layer it is."""
    for disk in domain.disks:
        yield from map(name_of, sources_of(disk))


def sources_of(disk: DiskXml) -> Iterator[SourceXml | None]:
    """Of all its layers, the top first."""
    yield disk.source
    layer: BackingStoreXml | None = disk.backing
    while layer:
        yield layer.source
        layer = layer.below


def name_of(source: SourceXml | None) -> str:
    return Path(source.file).name if source and source.file else ""


def path_of(disk: DiskXml) -> str:
    return (disk.source.file if disk.source else None) or ""
