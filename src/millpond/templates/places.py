"""Where an image lies that is linked instead of copied: a volume of Cinder's, or a snapshot in
a Ceph cluster."""

import re
import urllib.parse
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from millpond.errors import VolumeMissing, VolumeNotReady
from millpond.model.cloud import LinkAccess
from millpond.model.layer import RbdSource
from millpond.model.names import UUID
from millpond.model.template import Link
from millpond.system import rbd
from millpond.templates.cinder import Cinder, CinderVolume, Held
from millpond.templates.connections import NotLinkable, Ways, connected, is_for_the_host
from millpond.templates.host_volumes import HostVolumes

_READY = ("available", "in-use")
_CINDER = re.compile(rf"cinder://(?:[^/]+/)?({UUID})")
_RBD = re.compile(r"rbd://([^/]+)/([^/]+)/([^/]+)/([^/]+)")


class Place(Protocol):
    def look(self) -> None:
        """Raises NotLinkable, or what is wrong there. Nothing is changed."""
        ...

    def link(self, template: str) -> Link:
        """Make it ours to read, after a look. Raises NotLinkable if that cannot be."""
        ...

    def enter(self, template: str, link: Link) -> Link:
        """Give it its name in the base pool if it is a device or a file here: once it has been
        inspected, for libvirt looks into whatever it finds there."""
        ...

    def connect(self, template: str, link: Link) -> Link:
        """The same link, as ``link`` gave it: made again what this host has lost of it."""
        ...

    def unlink(self, template: str, but: str = "") -> None:
        """Let go of whatever we hold there for this template but one attachment. What is linked
        is never deleted."""
        ...

    def has(self, link: Link) -> bool:
        """Whether it is there still, and ours to read."""
        ...

    def leads(self, link: Link) -> bool:
        """Whether this host reaches it. Cinder is not asked; a Ceph cluster that does not answer
        is an error now, and QEMU would wait for minutes."""
        ...


class Places:
    def __init__(self, access: LinkAccess) -> None:
        self._access = access

    def at(self, location: str) -> Place:
        """Raises NotLinkable for a location of another kind."""
        if found := _CINDER.fullmatch(location):
            return _VolumePlace(self._access, self._cinder, self._volumes, location, found[1])
        if found := _RBD.fullmatch(location):
            parts = [urllib.parse.unquote(part) for part in found.groups()]
            return _RbdPlace(self._access, location, *parts)
        kind = location.partition("://")[0]
        raise NotLinkable(f"it lies in a store of the kind {kind!r}")

    @cached_property
    def _cinder(self) -> Cinder:
        return Cinder(self._access.cinder)

    @cached_property
    def _volumes(self) -> HostVolumes:
        return HostVolumes(self._access)


@dataclass(frozen=True, slots=True)
class _RbdPlace:
    access: LinkAccess
    location: str
    cluster: str
    pool: str
    image: str
    snapshot: str

    def look(self) -> None:
        source = self._source()
        if rbd.cluster_id(source.access) != self.cluster:
            raise NotLinkable("it lies in another Ceph cluster than the one that [libvirt] names")
        if not rbd.has_snapshot(source):
            raise VolumeMissing(self.location)

    def link(self, template: str) -> Link:
        return Link(location=self.location, rbd=self._source())

    def enter(self, template: str, link: Link) -> Link:
        return link

    def connect(self, template: str, link: Link) -> Link:
        return link

    def unlink(self, template: str, but: str = "") -> None:
        """Ceph is not told who reads."""

    def has(self, link: Link) -> bool:
        return link.rbd == self._source() and rbd.has_snapshot(link.rbd)

    def leads(self, link: Link) -> bool:
        return bool(link.rbd and rbd.exists(link.rbd))

    def _source(self) -> RbdSource:
        if not self.access.ceph:
            raise NotLinkable("it lies in Ceph, and [libvirt] images_rbd_pool names no cluster")
        access = replace(self.access.ceph, pool=self.pool)
        return RbdSource(access=access, image=self.image, snapshot=self.snapshot)


@dataclass(frozen=True, slots=True)
class _VolumePlace:
    access: LinkAccess
    cinder: Cinder
    volumes: HostVolumes
    location: str
    id: str

    def look(self) -> None:
        volume = self.cinder.volume(self.id)
        if volume is None:
            raise VolumeMissing(self.location)
        if volume.status not in _READY:
            raise VolumeNotReady(self.id, volume.status)
        if reason := _unfit(volume):
            raise NotLinkable(f"volume {self.id} of Cinder {reason}")

    def link(self, template: str) -> Link:
        self.unlink(template)  # of an attempt that was interrupted
        connector = {
            "host": self.access.host,
            "initiator": self.access.initiator,
            "mountpoint": self._mark(template),
        }
        attached = self.cinder.attach(self.id, connector)
        link = Link(location=self.location, attachment=attached.id)
        return connected(link, attached.connection, self._ways(template))

    def enter(self, template: str, link: Link) -> Link:
        return replace(link, file=self.volumes.enter(template, link.file)) if link.file else link

    def connect(self, template: str, link: Link) -> Link:
        return connected(link, self.cinder.connection(link.attachment), self._ways(template))

    def unlink(self, template: str, but: str = "") -> None:
        """A device stays connected as long as this host has it for somebody else."""
        volume = self.cinder.volume(self.id)
        held = volume.held if volume else ()
        here = {each.id for each in held if each.host == self.access.host}
        ours = {each.id for each in held if self._is_ours(each, template)} - {but}
        if not but:
            self.volumes.leave(template)
        for each in sorted(ours):
            if here == ours:
                self._disconnect(template, each)
            self.cinder.detach(each)

    def has(self, link: Link) -> bool:
        volume = self.cinder.volume(self.id)
        return volume is not None and link.attachment in {each.id for each in volume.held}

    def leads(self, link: Link) -> bool:
        if link.rbd:
            return rbd.exists(link.rbd)
        return link.file is None or self.volumes.leads(link.file)

    def _disconnect(self, template: str, attachment: str) -> None:
        connection = self.cinder.connection(attachment)
        if is_for_the_host(connection):
            self.volumes.disconnect(template, connection)

    def _ways(self, template: str) -> Ways:
        return Ways(
            ceph=self.access.ceph,
            initiator=self.access.initiator,
            connect=lambda connection: self.volumes.connect(template, connection),
        )

    def _is_ours(self, held: Held, template: str) -> bool:
        return (held.host, held.place) == (self.access.host, self._mark(template))

    def _mark(self, template: str) -> str:
        return f"/millpond/{self.access.owner()}/{template}"


def _unfit(volume: CinderVolume) -> str:
    if not volume.shared:
        return "allows one attachment at a time, and Glance needs it for downloads"
    if volume.encrypted:
        return "is encrypted"
    if not volume.read_only:
        return "is not read-only: what was inspected could be written over"
    return ""
