"""The disks of one host: for servers that we keep, and for those that Nova keeps.

The caller writes the record that plan() answers before it has the disk made.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from millpond.disks.backend import DiskRequest, ImageBackend, ImageFile, SupportsSnapshots
from millpond.disks.grow_strategies import GrowStrategy
from millpond.disks.selection import Selection
from millpond.errors import DiskTooSmall, ImageRefused
from millpond.images.source import ImageSource
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.layer import Chain, Layer
from millpond.model.names import ImageId, ServerId, filesystem_of, template_name
from millpond.model.operation import GrowMethod
from millpond.model.server import Content, Disk, TemplateRef
from millpond.model.sizes import MiB, check_disk_size, enough_for, format_size, whole_sectors
from millpond.model.template import Template
from millpond.records.journal import Watch, watching
from millpond.system.locks import Locks
from millpond.templates.blank import BlankTemplates
from millpond.templates.handler import BaseTemplateImagehandler

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """A new disk is made as the configuration says, any other one served as its record says,
    whatever is configured now (B13)."""

    storage: Callable[[Backend], ImageBackend]
    legacy_storage: Callable[[], ImageBackend]
    """Of disks that lie in no pool (deprecated): they are served, never made."""
    selection: Selection
    images: ImageSource
    templates: BaseTemplateImagehandler
    blanks: Callable[[], BlankTemplates]
    base_pool: str
    locks: Locks
    watch: Watch = noop

    def lock(self, server: ServerId, *, wait: bool = True) -> AbstractContextManager[None]:
        """For a caller whose records have no lock: held from before a disk is made until its
        record says that it is. Without ``wait`` Busy if somebody holds it."""
        name = f"server:{server}"
        return self.locks.hold(name) if wait else self.locks.hold_now(name, f"server {server}")

    def plan(self, request: DiskRequest) -> Disk:
        """The disk as it will be, for the record. Raises what makes it impossible; changes
        nothing."""
        check_disk_size(request.size)
        if request.image:
            return self._plan_from_image(request, request.image)
        if request.like:
            return self._plan_like(request, request.like)
        if request.content in (Content.CONFIG, Content.NVRAM):  # raw, in a directory pool (B12)
            return self.storage(Backend.RAW).plan(request, None)
        backend = self.storage(self.selection.blank_backend())
        if request.content in (Content.DATA, Content.BLANK):
            return backend.plan(request, None)
        size = -(-request.size // MiB) * MiB  # so that disks of one size share one template
        name = self.blanks().name(request.content, size, request.filesystem)
        template = self._template(name, DiskFormat.RAW)
        return backend.plan(replace(request, size=size), template)

    def fetch_template(
        self,
        disk: Disk,
        image: ImageId | None,
        progress: Progress = noop,
        trusted: tuple[str, ...] = (),
    ) -> Template | None:
        """What it is made from, prepared if it is not there yet; None for a disk that begins
        empty. ``trusted``: certificates that its server trusts to sign images."""
        if disk.template is None:
            return None
        if image:
            described = replace(self.images.describe(image), trusted=trusted)
            return self.templates.fetch_image(described, disk.template.format, progress)
        filesystem = filesystem_of(disk.template.volume)
        return self.blanks().fetch(disk.content, disk.size, filesystem)

    def create(
        self,
        disk: Disk,
        template: Template | None,
        content: bytes = b"",
        file: ImageFile | None = None,
    ) -> Disk:
        """The disk of a record; one that was begun and not finished is recreated. The disk as it
        became: it may be larger. ``content`` is all that a small one holds; ``file`` is an image
        on this machine with all that it shows."""
        storage = self._serving(disk)
        with watching(self.watch, "disk", "make"):
            if file:
                return storage.create_from_file(disk, file)
            made = storage.create(disk, template)
        if content:
            self._serving(disk).fill(made, content)
        return made

    def exists(self, disk: Disk) -> bool:
        """A pool that cannot be used is an error."""
        return self._serving(disk).exists(disk)

    def chain(self, disk: Disk) -> Chain:
        """Its layers as a domain names them, the top first."""
        return self._serving(disk).chain(disk)

    def repair(self, disk: Disk) -> None:
        """What a crash of the host may have left in it; no server runs on it."""
        self._serving(disk).repair(disk)

    def grow_strategy(self, disk: Disk, method: GrowMethod | None = None) -> GrowStrategy:
        """How it becomes larger; ``method`` is the one by which that was begun."""
        return self._serving(disk).grow_strategy(disk, method)

    def grow(self, disk: Disk, size: int) -> Disk:
        """All at once: no server runs on it. It may be called again after it was interrupted."""
        strategy = self.grow_strategy(disk)
        if whole_sectors(size) <= (found := max(disk.size, strategy.size())):
            return replace(disk, size=found)
        strategy.begin(whole_sectors(size))
        grown = replace(disk, size=strategy.finish(whole_sectors(size)))
        strategy.abandon()
        LOG.info("grew %s to %s", disk.location, format_size(grown.size))
        return grown

    def native_snapshots(self, disk: Disk) -> SupportsSnapshots | None:
        """What takes a snapshot while a server writes; None where its pool cannot."""
        storage = self._serving(disk)
        return storage if isinstance(storage, SupportsSnapshots) else None

    def extract(self, disk: Disk, image: ImageFile, progress: Progress = noop) -> None:
        """Nobody writes to it. One with native snapshots is frozen, and read as it was then."""
        self._serving(disk).extract(disk, image, progress)

    def needs_temporary_volume(self, disk: Disk) -> bool:
        """Whether, while it is extracted, something lies next to it that tidy() removes."""
        return self._serving(disk).needs_temporary_volume(disk)

    def tidy(self, disk: Disk) -> None:
        """Remove what an extraction that was interrupted left next to it."""
        self._serving(disk).tidy(disk)

    def merge(self, disk: Disk, above: Layer) -> None:
        """Write into it what an overlay above it holds; no server runs on either."""
        self._serving(disk).merge(disk, above)

    def delete(self, disk: Disk) -> None:
        """With the moment that its pool may still keep. One that is gone already is no error."""
        with watching(self.watch, "disk", "delete"):
            native = self.native_snapshots(disk)
            if native and self.exists(disk):
                native.thaw(disk)
            self._serving(disk).delete(disk)

    def _serving(self, disk: Disk) -> ImageBackend:
        return self.legacy_storage() if disk.path else self.storage(disk.backend)

    def _plan_from_image(self, request: DiskRequest, image: Image) -> Disk:
        if not request.content.is_seen_by_the_guest:
            # A kernel's copy is the server's own, because libvirt gives it to QEMU's user for the
            # guest's life; raw, in a directory pool, because libvirt takes its path (B12).
            template = self._template(template_name(image.id, DiskFormat.RAW), DiskFormat.RAW)
            return self.storage(Backend.RAW).plan(replace(request, size=image.size), template)
        if request.content is Content.CDROM:  # an overlay: nothing is copied, nothing written
            template = self._template(template_name(image.id, DiskFormat.RAW), DiskFormat.RAW)
            size = root_size(image, 0)
            return self.storage(Backend.QCOW2).plan(replace(request, size=size), template)
        choice = self.selection.choose(image.format)
        LOG.debug("image %s goes to backend %s: %s", image.name, choice.backend, choice.reason)
        format = choice.template_format
        template = self._template(template_name(image.id, format), format)
        size = root_size(image, request.size)
        return self.storage(choice.backend).plan(replace(request, size=size), template)

    def _plan_like(self, request: DiskRequest, other: Disk) -> Disk:
        """By the same backend, if this host has it."""
        is_file = not request.content.is_seen_by_the_guest  # always raw, in a directory pool (B12)
        is_here = is_file or other.backend in self.selection.backends()
        backend = other.backend if is_here else self.selection.blank_backend()
        return self.storage(backend).plan(request, None)

    def _template(self, name: str, format: DiskFormat) -> TemplateRef:
        return TemplateRef(pool=self.base_pool, volume=name, format=format)


def root_size(image: Image, asked: int) -> int:
    """Of a disk made from an image, whose own size it has unless one is asked for."""
    needed = image.virtual_size
    if not asked and not needed:
        reason = "how large a disk it holds is known only when all of it has been read"
        raise ImageRefused(image.name, reason, "state the size of the server's disk")
    if asked and asked < needed:
        name, enough = image.name, enough_for(needed)
        raise DiskTooSmall(format_size(asked), format_size(needed), name, enough)
    return whole_sectors(asked or needed)
