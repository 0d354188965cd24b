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
from millpond.templates.cinder import Cinder, CinderVolume
from millpond.templates.connections import NotLinkable, connected

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

    def unlink(self, template: str, but: str = "") -> None:
        """Let go of whatever we hold there for this template but one attachment. What is linked
        is never deleted."""
        ...

    def has(self, link: Link) -> bool:
        """Whether it leads there still."""
        ...


class Places:
    def __init__(self, access: LinkAccess) -> None:
        self._access = access

    def at(self, location: str) -> Place:
        """Raises NotLinkable for a location of another kind."""
        if found := _CINDER.fullmatch(location):
            return _VolumePlace(self._access, self._cinder, location, found[1])
        if found := _RBD.fullmatch(location):
            parts = [urllib.parse.unquote(part) for part in found.groups()]
            return _RbdPlace(self._access, location, *parts)
        kind = location.partition("://")[0]
        raise NotLinkable(f"it lies in a store of the kind {kind!r}")

    @cached_property
    def _cinder(self) -> Cinder:
        return Cinder(self._access.cinder)


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

    def unlink(self, template: str, but: str = "") -> None:
        """Ceph is not told who reads."""

    def has(self, link: Link) -> bool:
        return link.rbd == self._source() and rbd.has_snapshot(link.rbd)

    def _source(self) -> RbdSource:
        if not self.access.ceph:
            raise NotLinkable("it lies in Ceph, and [libvirt] images_rbd_pool names no cluster")
        access = replace(self.access.ceph, pool=self.pool)
        return RbdSource(access=access, image=self.image, snapshot=self.snapshot)


@dataclass(frozen=True, slots=True)
class _VolumePlace:
    access: LinkAccess
    cinder: Cinder
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
        return connected(link, attached.connection, self.access.ceph, self.access.initiator)

    def unlink(self, template: str, but: str = "") -> None:
        volume = self.cinder.volume(self.id)
        for each in volume.held if volume else ():
            ours = (each.host, each.place) == (self.access.host, self._mark(template))
            if ours and each.id != but:
                self.cinder.detach(each.id)

    def has(self, link: Link) -> bool:
        volume = self.cinder.volume(self.id)
        return volume is not None and link.attachment in {each.id for each in volume.held}

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
