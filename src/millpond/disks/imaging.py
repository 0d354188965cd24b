"""A disk as an image, also while a server runs on it, for a caller that keeps servers and their
domains itself, as Nova does: no domain is defined again, and no server is led to an overlay."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from millpond.disks.backend import ImageFile, SupportsSnapshots
from millpond.disks.disks import Disks
from millpond.errors import DiskNotFound
from millpond.libvirt.block_jobs import COPY, BlockJobs
from millpond.libvirt.domain_disks import DomainDisks
from millpond.libvirt.domains import Domains
from millpond.model.callbacks import noop
from millpond.model.layer import FileSource, Layer
from millpond.model.names import ServerId
from millpond.model.server import Disk
from millpond.records.journal import Watch, watching
from millpond.system import files, qemu_img
from millpond.system.waiting import POLL
from millpond.xml.domain import DiskXml

Stopping = AbstractContextManager[Callable[[], None]]
"""The image is of the moment when the block calls what it is given, and it is whole when the block
has ended."""


class Imaging:
    def __init__(
        self,
        disks: Disks,
        domains: Domains,
        domain_disks: DomainDisks,
        jobs: BlockJobs,
        watch: Watch = noop,
    ) -> None:
        self._disks = disks
        self._domains = domains
        self._domain_disks = domain_disks
        self._jobs = jobs
        self._watch = watch

    def extract(self, disk: Disk, image: ImageFile) -> None:
        """No server runs on it."""
        if native := self._disks.native_snapshots(disk):
            with self._freezing(native, disk, image) as freeze:
                freeze()
        else:
            self._disks.extract(disk, image)

    def copy(self, server: ServerId, disk: Disk, image: ImageFile) -> Stopping:
        """The same of a disk that a server runs on."""
        if native := self._disks.native_snapshots(disk):
            return self._freezing(native, disk, image)
        if image.compress:
            return self._compressing(server, disk, image)
        return self._mirroring(server, disk, image)

    def find_copied(self, server: ServerId, disks: Iterable[Disk]) -> list[Disk]:
        """Those of these that are being copied at this moment."""
        found = ((each, self._find(server, each)) for each in disks)
        return [disk for disk, shown in found if shown and shown.job == COPY]

    def files(self) -> set[Path]:
        """What disks of whatever domain are copied to at this moment."""
        disks = [disk for domain in self._domain_disks.chains() for disk in domain.disks]
        return {Path(each.mirror.file) for each in disks if each.mirror and each.mirror.file}

    def stop(self, server: ServerId, disks: Sequence[Disk]) -> None:
        """Whatever copy of these a process that died has left under way."""
        for each in self.find_copied(server, disks):
            self._jobs.stop_mirroring(server, self._device(server, each))
        for each in disks:
            if native := self._disks.native_snapshots(each):
                native.thaw(each)

    @contextmanager
    def _freezing(
        self, native: SupportsSnapshots, disk: Disk, image: ImageFile
    ) -> Iterator[Callable[[], None]]:
        """Where the pool takes a snapshot by itself. QEMU's own copy of a disk in Ceph would write
        out what is empty there."""
        try:
            yield partial(native.freeze, disk)
            with watching(self._watch, "disk", "extract"):
                self._disks.extract(disk, image)
        finally:
            native.thaw(disk)

    @contextmanager
    def _compressing(
        self, server: ServerId, disk: Disk, image: ImageFile
    ) -> Iterator[Callable[[], None]]:
        """QEMU's own copy never is."""
        copy = ImageFile(path=image.path.with_name(f"{image.path.name}.copy"), format=image.format)
        try:
            with self._mirroring(server, disk, copy) as stop:
                yield stop
            layer = Layer(source=FileSource(path=str(copy.path)), format=copy.format)
            qemu_img.extract([layer], image.path, image.format, compress=True)
        finally:
            files.remove(copy.path)

    @contextmanager
    def _mirroring(
        self, server: ServerId, disk: Disk, image: ImageFile
    ) -> Iterator[Callable[[], None]]:
        """The block begins when all is copied, and the copy follows until it is stopped."""
        jobs, device = self._jobs, self._device(server, disk)
        stop = partial(jobs.stop_mirroring, server, device)
        stop()  # of a process that died
        qemu_img.create(image.path, image.format, jobs.size(server, device))
        copy = Layer(source=FileSource(path=str(image.path)), format=image.format)
        jobs.mirror(server, device, (copy,))
        try:
            with watching(self._watch, "disk", "mirror"):
                while not jobs.is_mirrored(server, device):
                    time.sleep(POLL)
            yield stop
        finally:
            stop()

    def _device(self, server: ServerId, disk: Disk) -> str:
        """How the running guest knows it."""
        if found := self._find(server, disk):
            return found.target
        raise DiskNotFound(server, disk.role, ())

    def _find(self, server: ServerId, disk: Disk) -> DiskXml | None:
        """In the domain, if it is defined."""
        domain = self._domains.description(server)
        for each in domain.disks if domain else ():
            source = each.source
            if source and disk.volume in (source.volume, Path(source.name or "").name):
                return each
        return None
