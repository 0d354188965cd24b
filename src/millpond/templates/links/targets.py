"""Where an image lies that is linked instead of copied: a volume of Cinder's, or a snapshot in
a Ceph cluster."""

import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from millpond.errors import NotLinkable, VolumeMissing, VolumeNotReady
from millpond.model.cloud import LinkAccess
from millpond.model.layer import CephAccess, RbdSource
from millpond.model.names import UUID, ImageId, held_name
from millpond.model.template import Link
from millpond.system import rbd
from millpond.templates.links.cinder import Attachment, Cinder, CinderVolume
from millpond.templates.links.connections import AttachOptions, connect_link, is_for_the_host
from millpond.templates.links.host_volumes import HostVolumes

_READY = ("available", "in-use")
_CINDER = re.compile(rf"cinder://(?:[^/]+/)?({UUID})")
_NAME = re.compile(r"[\w.][\w.-]*")  # no option of a command, no path, no snapshot
_RBD = re.compile(r"rbd://([^/]+)/([^/]+)/([^/]+)/([^/]+)")
_GLANCES_SNAPSHOT = "snap"  # DEFAULT_SNAPNAME in glance_store's rbd driver


Note = Callable[[str], None]
"""Told of what is held, before anything is done with it."""


class LinkTarget(Protocol):
    def look(self, image: ImageId) -> None:
        """Raises NotLinkable, or what is wrong there. Nothing is changed."""
        ...

    def link(self, template: str, note: Note) -> Link:
        """Make it ours to read, after a look; what we hold already is used. Raises NotLinkable if
        that cannot be."""
        ...

    def enter(self, template: str, link: Link) -> Link:
        """Give it its name in the base pool if it is a device or a file here: once it has been
        inspected, for libvirt looks into whatever it finds there."""
        ...

    def connect(self, template: str, link: Link) -> Link:
        """The same link, as ``link`` gave it: made again what this host has lost of it."""
        ...

    def unlink(self, template: str, noted: str = "", but: str = "") -> None:
        """Let go of whatever we hold there for this template, also of what was noted, but not of
        one attachment. What is linked is never deleted."""
        ...

    def has(self, link: Link) -> bool:
        """Whether it is there still, and ours to read."""
        ...

    def is_reachable(self, link: Link) -> bool:
        """Whether this host reaches it. Cinder is not asked; a Ceph cluster that does not answer
        is an error now, and QEMU would wait for minutes."""
        ...


class LinkTargets:
    def __init__(self, access: LinkAccess) -> None:
        self._access = access

    def at(self, location: str) -> LinkTarget:
        """Raises NotLinkable for a location of another kind."""
        if found := _CINDER.fullmatch(location):
            return _VolumeTarget(self._access, self._cinder, self._volumes, location, found[1])
        if found := _RBD.fullmatch(location):
            parts = [urllib.parse.unquote(part) for part in found.groups()]
            if all(_NAME.fullmatch(part) for part in parts):
                return _RbdTarget(self._access, location, *parts)
        kind = location.partition("://")[0]
        raise NotLinkable(f"it lies in a store of the kind {kind!r}")

    @cached_property
    def _cinder(self) -> Cinder:
        return Cinder(self._access.cinder)

    @cached_property
    def _volumes(self) -> HostVolumes:
        return HostVolumes(self._access)


@dataclass(frozen=True, slots=True)
class _RbdTarget:
    """A clone of ours keeps the image from being removed: an overlay is none."""

    access: LinkAccess
    location: str
    cluster: str
    pool: str
    image: str
    snapshot: str

    def look(self, image: ImageId) -> None:
        """Whoever may set an image's location could name another one's bytes, or some that can
        be written to: those of a protected snapshot cannot."""
        if (self.image, self.snapshot) != (image, _GLANCES_SNAPSHOT):
            raise NotLinkable("its location is not the one that Glance gives an image")
        source = self._source()
        if rbd.cluster_id(source.access) != self.cluster:
            raise NotLinkable("it lies in another Ceph cluster than the one that [libvirt] names")
        if not rbd.has_snapshot(source):
            raise VolumeMissing(self.location)
        if not rbd.has_snapshot(source, protected=True):
            raise NotLinkable("its snapshot is not protected, as Glance's are")

    def link(self, template: str, note: Note) -> Link:
        source, held = self._source(), self._held(template)
        note("")
        if not rbd.exists(held):
            rbd.clone(source, held)
        return Link(location=self.location, rbd=source)

    def enter(self, template: str, link: Link) -> Link:
        return link

    def connect(self, template: str, link: Link) -> Link:
        return replace(link, rbd=self._source())

    def unlink(self, template: str, noted: str = "", but: str = "") -> None:
        if self.access.ceph and not but:
            rbd.remove(self._held(template))

    def has(self, link: Link) -> bool:
        return bool(self.access.ceph) and rbd.has_snapshot(self._source())

    def is_reachable(self, link: Link) -> bool:
        return bool(self.access.ceph) and rbd.exists(self._source())

    def _source(self) -> RbdSource:
        access = replace(self._ceph(), pool=self.pool)
        return RbdSource(access=access, image=self.image, snapshot=self.snapshot)

    def _held(self, template: str) -> RbdSource:
        return RbdSource(access=self._ceph(), image=held_name(template, self.access.owner()))

    def _ceph(self) -> CephAccess:
        if not self.access.ceph:
            raise NotLinkable("it lies in Ceph, and [libvirt] images_rbd_pool names no cluster")
        return self.access.ceph


@dataclass(frozen=True, slots=True)
class _VolumeTarget:
    access: LinkAccess
    cinder: Cinder
    volumes: HostVolumes
    location: str
    id: str

    def look(self, image: ImageId) -> None:
        volume = self.cinder.volume(self.id)
        if volume is None:
            raise VolumeMissing(self.location)
        if volume.status not in _READY:
            raise VolumeNotReady(self.id, volume.status)
        if reason := _unfit(volume, image, self._glances_project()):
            raise NotLinkable(f"volume {self.id} of Cinder {reason}")

    def link(self, template: str, note: Note) -> Link:
        found = self._ours(template)
        attachment = next(iter(sorted(found)), "") or self.cinder.reserve(self.id)
        note(attachment)
        if attachment not in found:
            self.cinder.attach(attachment, self._connector(template))
        return self.connect(template, Link(location=self.location, attachment=attachment))

    def enter(self, template: str, link: Link) -> Link:
        return replace(link, file=self.volumes.enter(template, link.file)) if link.file else link

    def connect(self, template: str, link: Link) -> Link:
        made = connect_link(link, self.cinder.connection(link.attachment), self._options(template))
        if made.rbd and not rbd.exists(made.rbd):
            raise NotLinkable("its volume is not in the Ceph cluster that this host knows")
        return made

    def unlink(self, template: str, noted: str = "", but: str = "") -> None:
        """A device stays connect_link as long as this host has it for somebody else."""
        ours = self._ours(template)
        alone = self._held_here() <= ours
        if not but:
            self.volumes.release(template)
        for each in sorted({*ours, noted} - {but, ""}):
            if alone and not but:
                self._disconnect(template, each)
            self.cinder.detach(each)

    def has(self, link: Link) -> bool:
        return link.attachment in {each.id for each in self._held()}

    def is_reachable(self, link: Link) -> bool:
        if link.rbd:
            return rbd.exists(link.rbd)
        return link.file is None or self.volumes.is_reachable(link.file)

    def _glances_project(self) -> str:
        return self.access.image_volume_project or self.cinder.own_project()

    def _held(self) -> tuple[Attachment, ...]:
        volume = self.cinder.volume(self.id)
        return volume.held if volume else ()

    def _held_here(self) -> set[str]:
        """By this host, as far as we may know."""
        return {each.id for each in self._held() if each.host in ("", self.access.host)}

    def _ours(self, template: str) -> set[str]:
        """By their mountpoint alone: who holds one is told to administrators only."""
        return {each.id for each in self._held() if each.mountpoint == self._mountpoint(template)}

    def _disconnect(self, template: str, attachment: str) -> None:
        connection = self.cinder.connection(attachment)
        if is_for_the_host(connection):
            self.volumes.disconnect(template, connection)

    def _connector(self, template: str) -> dict[str, str]:
        return {
            "host": self.access.host,
            "initiator": self.access.initiator,
            "mountpoint": self._mountpoint(template),
        }

    def _options(self, template: str) -> AttachOptions:
        return AttachOptions(
            ceph=self.access.ceph,
            initiator=self.access.initiator,
            connect=lambda connection: self.volumes.connect(template, connection),
        )

    def _mountpoint(self, template: str) -> str:
        return f"/millpond/{self.access.owner()}/{template}"


def _unfit(volume: CinderVolume, image: ImageId, project: str) -> str:
    """What a volume says of itself, its owner can change: only Glance's is believed."""
    if not project or volume.project != project:
        owner = volume.project or "which Cinder does not name"
        return f"belongs to project {owner}, not to the one of Glance's store ({project or '?'})"
    if volume.image != image:
        return "is not said to have this image"
    if not volume.shared:
        return "allows one attachment at a time, and Glance needs it for downloads"
    if volume.encrypted:
        return "is encrypted"
    if not volume.read_only:
        return "is not read-only: what was inspected could be written over"
    return ""
