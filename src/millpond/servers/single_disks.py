"""Disks one by one, for a caller that keeps servers and their domains itself, as Nova does.

The caller writes the record that plan() answers before it has the disk made.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from millpond.disks.backend import DiskWanted, FreezesItself
from millpond.errors import DiskNotFound
from millpond.libvirt.block_jobs import COPY
from millpond.model.flavor import Flavor
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import FileSource, Layer
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Content, Disk
from millpond.model.sizes import format_size, whole_sectors
from millpond.records.journal import Moment
from millpond.servers import disks
from millpond.servers.host import Host
from millpond.system import files, qemu_img
from millpond.system.locks import Locks
from millpond.xml.domain import DiskXml
from millpond.xml.layers import LayersXml, layers_xml

LOG = logging.getLogger(__name__)

_POLL = 0.1  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOrder:
    server: ServerId
    role: str
    content: Content
    size: int = 0
    """0: as large as its image."""
    image: ImageId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """A new file for what a disk holds, as one image."""

    path: Path
    format: DiskFormat
    compress: bool = False


class SingleDisks:
    def __init__(self, host: Host, locks: Locks) -> None:
        self._host = host
        self._locks = locks

    def working_on(self, server: ServerId) -> AbstractContextManager[None]:
        """Held by the caller from before a disk is made until its record says that it is."""
        return self._locks.hold(f"server:{server}")

    def left_alone(self, server: ServerId) -> AbstractContextManager[None]:
        """The same for who comes to tidy up; Busy if somebody makes a disk of it."""
        return self._locks.hold_now(f"server:{server}", f"server {server}")

    def plan(self, order: DiskOrder) -> Disk:
        """The disk as it will be, for the record. Nothing is made yet."""
        backend, wanted = self._wanted(order)
        return self._host.backend(backend).plan(wanted)

    def make(self, disk: Disk, image: ImageId | None = None) -> Disk:
        """One that was begun and not finished is made anew. It may become larger."""
        template = disks.template_of(self._host, disk, image)
        with self._watched("make"):
            return self._host.storage_of(disk).create(disk, template)

    def fill(self, disk: Disk, content: bytes) -> None:
        self._host.storage_of(disk).fill(disk, content)

    def exists(self, disk: Disk) -> bool:
        return self._host.storage_of(disk).exists(disk)

    def delete(self, disk: Disk) -> None:
        """A disk that is gone already is no error."""
        with self._watched("delete"):
            self._host.storage_of(disk).delete(disk)

    def grow(self, disk: Disk, size: int) -> Disk:
        """No server runs on it. It may be called again after it was interrupted."""
        growth = self._host.storage_of(disk).growth(disk)
        if whole_sectors(size) <= (found := max(disk.size, growth.size())):
            return replace(disk, size=found)
        growth.begin(whole_sectors(size))
        grown = replace(disk, size=growth.finish(whole_sectors(size)))
        growth.abandon()
        LOG.info("grew %s to %s", disk.place, format_size(grown.size))
        return grown

    def layers(self, disk: Disk) -> LayersXml:
        """What its domain has to say of it."""
        return layers_xml(self._host.storage_of(disk).chain(disk))

    def extract(self, disk: Disk, image: ImageFile) -> None:
        """No server runs on it."""
        storage = self._host.storage_of(disk)
        if isinstance(storage, FreezesItself):
            with self._frozen(disk, image) as freeze:
                freeze()
        else:
            storage.extract(disk, image.path, image.format, compress=image.compress)

    def copied(
        self, server: ServerId, disk: Disk, image: ImageFile
    ) -> AbstractContextManager[Callable[[], None]]:
        """The same of a disk that a server runs on. The image is of the moment when the block
        calls what it is given, and it is whole when the block has ended."""
        if isinstance(self._host.storage_of(disk), FreezesItself):
            return self._frozen(disk, image)
        if image.compress:
            return self._compressed(server, disk, image)
        return self._mirrored(server, disk, image)

    @contextmanager
    def _frozen(self, disk: Disk, image: ImageFile) -> Iterator[Callable[[], None]]:
        """Where the pool keeps a moment by itself. QEMU's own copy of a disk in Ceph would write
        out what is empty there."""
        storage = self._host.storage_of(disk)
        assert isinstance(storage, FreezesItself)
        try:
            yield partial(storage.freeze, disk)
            with self._watched("extract"):
                storage.extract(disk, image.path, image.format, compress=image.compress)
        finally:
            storage.thaw(disk)

    @contextmanager
    def _compressed(
        self, server: ServerId, disk: Disk, image: ImageFile
    ) -> Iterator[Callable[[], None]]:
        """QEMU's own copy never is."""
        copy = ImageFile(path=image.path.with_name(f"{image.path.name}.copy"), format=image.format)
        try:
            with self._mirrored(server, disk, copy) as stop:
                yield stop
            layer = Layer(source=FileSource(path=str(copy.path)), format=copy.format)
            qemu_img.extract([layer], image.path, image.format, compress=True)
        finally:
            files.remove(copy.path)

    @contextmanager
    def _mirrored(
        self, server: ServerId, disk: Disk, image: ImageFile
    ) -> Iterator[Callable[[], None]]:
        """The block begins when all is copied, and the copy follows until it is stopped."""
        jobs, device = self._host.block_jobs, self._device(server, disk)
        stop = partial(jobs.stop_mirroring, server, device)
        stop()  # of a process that died
        qemu_img.create(image.path, image.format, jobs.size(server, device))
        jobs.mirror(server, device, str(image.path), image.format)
        try:
            with self._watched("mirror"):
                while not jobs.is_mirrored(server, device):
                    time.sleep(_POLL)
            yield stop
        finally:
            stop()

    def mirrors(self, server: ServerId, disks: Iterable[Disk]) -> list[Disk]:
        """Those of these that are being copied at this moment."""
        found = ((each, self._find(server, each)) for each in disks)
        return [disk for disk, shown in found if shown and shown.job == COPY]

    def copies(self) -> set[Path]:
        """Files that disks of whatever domain are copied to at this moment."""
        disks = [disk for domain in self._host.domains.chains() for disk in domain.disks]
        return {Path(each.mirror.file) for each in disks if each.mirror and each.mirror.file}

    def stop_copying(self, server: ServerId, disks: Sequence[Disk]) -> None:
        """Whatever copy of these a process that died has left under way."""
        for each in self.mirrors(server, disks):
            self._host.block_jobs.stop_mirroring(server, self._device(server, each))
        for each in disks:
            storage = self._host.storage_of(each)
            if isinstance(storage, FreezesItself):
                storage.thaw(each)

    def _device(self, server: ServerId, disk: Disk) -> str:
        """How the running guest knows it."""
        if found := self._find(server, disk):
            return found.target
        raise DiskNotFound(server, disk.role, ())

    def _find(self, server: ServerId, disk: Disk) -> DiskXml | None:
        """In the domain, if it is defined."""
        domain = self._host.domains.description(server)
        for each in domain.disks if domain else ():
            source = each.source
            if source and disk.volume in (source.volume, Path(source.name or "").name):
                return each
        return None

    @contextmanager
    def _watched(self, step: str) -> Iterator[None]:
        self._host.watch("disk", step, Moment.BEGIN)
        yield
        self._host.watch("disk", step, Moment.END)

    def _wanted(self, order: DiskOrder) -> tuple[Backend, DiskWanted]:
        if order.content is Content.CONFIG:
            return disks.config_drive(order.server, order.role, order.size)
        if order.image is None:
            return disks.blank(self._host, order.server, order.role, order.content, order.size)
        request = disks.DiskRequest(
            server=order.server,
            image=self._host.images.describe(order.image),
            flavor=Flavor(disk=order.size),
            bus="virtio",
        )
        backend, wanted = disks.root(self._host, request)
        return backend, replace(wanted, role=order.role)
