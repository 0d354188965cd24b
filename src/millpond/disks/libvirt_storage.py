"""LibvirtStorage: disks as volumes of a storage pool, overlays or full copies (specs 001)."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from millpond.disks import own_format
from millpond.disks.backend import DiskRequest, ImageFile, PoolsOf
from millpond.disks.grow_strategies import STRATEGIES, GrowStrategy
from millpond.errors import DiskTooSmall, NeedsHostFiles, VolumeNotFound
from millpond.images.formats import written
from millpond.libvirt import locality
from millpond.libvirt.pool import Pool, download, send_file
from millpond.model.callbacks import Progress, noop, scaled
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import Chain, FileSource, Layer, VolumeSource
from millpond.model.names import extracted_name, volume_name
from millpond.model.operation import GrowMethod
from millpond.model.server import Content, Disk, TemplateRef
from millpond.model.sizes import enough_for, format_size
from millpond.model.template import Template
from millpond.model.volume import Backing, Volume, VolumeSpec
from millpond.system import files, qemu_img
from millpond.system.qemu_img import ToolProgress

LOG = logging.getLogger(__name__)

FindLinked = Callable[[str], Layer | None]
"""Where the bytes of the template of this name are, if it is a link; None of one in the pool."""


class LibvirtStorage:
    """Decides by what the pool can do, never by its name or type."""

    def __init__(
        self,
        backend: Backend,
        pools: PoolsOf,
        *,
        find_linked: FindLinked = noop,
    ) -> None:
        self._backend = backend
        self._pools = pools
        self._find_linked = find_linked

    def plan(self, request: DiskRequest, template: TemplateRef | None) -> Disk:
        pool = self._pools.for_disk(self._backend, request.role)
        overlays = self._backend is Backend.QCOW2 and pool.capabilities.overlays
        return Disk(
            role=request.role,
            backend=self._backend,
            pool=pool.name,
            volume=volume_name(request.server, request.role),
            format=self._backend.disk_format,
            size=request.size,
            target=request.target,
            content=request.content,
            template=template,
            overlay=overlays and template is not None,
        )

    def create(self, disk: Disk, template: Template | None) -> Disk:
        if template:
            _refuse_too_small(disk, template)
        if disk.content is Content.NVRAM:
            return disk
        self.delete(disk)  # the record came first: a volume of this name is our own half-made one
        pool = self._pools.ensure(disk.pool)
        if not disk.format.libvirt_makes:
            return replace(disk, size=self._write(disk, template))
        if template is None:
            pool.create(spec_of(disk))
            LOG.info("made %s/%s, empty", disk.pool, disk.volume)
        elif disk.overlay:
            self._overlay(disk, template)
        else:
            self._copy(disk, template)
        made = pool.get(disk.volume)
        self._sync(made)
        return replace(disk, size=made.capacity) if made.is_seen_as(disk.format) else disk

    def create_from_file(self, disk: Disk, image: ImageFile) -> Disk:
        self.delete(disk)
        source = Layer(source=FileSource(path=str(image.path)), format=image.format)
        if not disk.format.libvirt_makes:
            volume = self._empty_file(disk, None)
            with own_format.room_for(volume, disk.size):
                size = own_format.write(Path(volume.path), disk.format, disk.size, source)
            return replace(disk, size=size)
        self._fill_from_file(disk, source, image.path.with_name(f"{image.path.name}.volume"))
        made = self._pools.ensure(disk.pool).get(disk.volume)
        self._sync(made)
        LOG.info("made %s/%s from a file", disk.pool, disk.volume)
        return replace(disk, size=made.capacity) if made.is_seen_as(disk.format) else disk

    def fill(self, disk: Disk, content: bytes) -> None:
        pool = self._pools.ensure(disk.pool)
        pool.upload(disk.volume, content)
        self._sync(pool.get(disk.volume))

    def grow_strategy(self, disk: Disk, method: GrowMethod | None = None) -> GrowStrategy:
        pool = self._pools.ensure(disk.pool)
        return STRATEGIES[method or self._grow_method(disk, pool)](pool, disk)

    def repair(self, disk: Disk) -> None:
        if not disk.format.stays_open:
            return
        volume = self._pools.ensure(disk.pool).get(disk.volume)
        if self._can_open(volume, os.W_OK) and own_format.close(Path(volume.path), disk.format):
            LOG.info("repaired %s/%s, which a crash had left open", disk.pool, disk.volume)

    def chain(self, disk: Disk) -> Chain:
        if disk.content is Content.NVRAM:  # perhaps before it is there
            return (Layer(source=FileSource(path=self._path(disk)), format=disk.format),)
        if not disk.content.is_seen_by_the_guest:
            return self._layers(disk)  # <kernel> and <initrd> take a path
        top = Layer(source=self._pools.ensure(disk.pool).source(disk.volume), format=disk.format)
        if not disk.overlay or disk.template is None:
            return (top,)
        base = VolumeSource(pool=disk.template.pool, volume=disk.template.volume)
        volume = Layer(source=base, format=disk.template.format)
        return top, self._find_linked(disk.template.volume) or volume

    def extract(self, disk: Disk, image: ImageFile, progress: Progress = noop) -> None:
        """By qemu-img with every layer stated: createXMLFrom would take a raw disk for what its
        first bytes say, and a guest writes those (trap 2)."""
        if self._is_local(disk):
            layers, told = self._layers(disk), ToolProgress(progress=progress, total=disk.size)
            qemu_img.extract(layers, image.path, image.format, compress=image.compress, told=told)
            return
        pool = self._pools.ensure(disk.pool)
        if disk.overlay and disk.template and self._find_linked(disk.template.volume):
            path = pool.get(disk.volume).path
            reason = "libvirt does not know what its template is linked to"
            raise NeedsHostFiles(f"a snapshot of {disk.role}", reason, path)
        try:
            _download_image(pool, disk, image, progress)
        finally:
            _remove_whole_image(pool, disk)

    def needs_temporary_volume(self, disk: Disk) -> bool:
        return _needs_whole_image(disk) and not self._is_local(disk)

    def tidy(self, disk: Disk) -> None:
        _remove_whole_image(self._pools.ensure(disk.pool), disk)

    def merge(self, disk: Disk, above: Layer) -> None:
        volume = self._pools.ensure(disk.pool).get(disk.volume)
        if not self._is_local(disk):
            reason = "libvirt merges only disks of a server that runs"
            raise NeedsHostFiles(f"writing an overlay into {disk.role}", reason, volume.path)
        layers = (above, *self._layers(disk))
        with own_format.room_for(volume, disk.size):
            own_format.merge(Path(volume.path), layers)
        LOG.info("wrote what lay above it into %s/%s", disk.pool, disk.volume)

    def exists(self, disk: Disk) -> bool:
        return self._find(disk) is not None

    def delete(self, disk: Disk) -> None:
        pool = self._pools.ensure(disk.pool)
        if method := _method_by_copy(disk, pool):
            self.grow_strategy(disk, method).abandon()
        _remove_whole_image(pool, disk)
        if disk.content is Content.NVRAM:
            self._find(disk)  # for the pool to know it
        with suppress(VolumeNotFound):
            pool.delete(disk.volume)

    def _find(self, disk: Disk) -> Volume | None:
        """What libvirt makes as it starts a domain, its pools know after a refresh, which waits
        for volumes that are being built."""
        pool = self._pools.ensure(disk.pool)
        found = pool.find(disk.volume)
        if found or disk.content is not Content.NVRAM:
            return found
        if pool.local and not os.path.exists(self._path(disk)):
            return None
        pool.refresh()
        return pool.find(disk.volume)

    def _path(self, disk: Disk) -> str:
        return os.path.join(self._pools.ensure(disk.pool).path, disk.volume)

    def _sync(self, volume: Volume) -> None:
        """The record will say that the disk is made, and what libvirt makes by qemu-img is in the
        page cache alone. A volume on a remote host cannot be synced from here."""
        if self._can_open(volume, os.R_OK):
            files.sync_path(Path(volume.path))

    def _is_local(self, disk: Disk) -> bool:
        """With the template that backs it, whose pool may be remote."""
        volumes = [self._pools.ensure(disk.pool).get(disk.volume)]
        if disk.overlay and disk.template and not self._find_linked(disk.template.volume):
            volumes.append(self._pools.base.get(disk.template.volume))
        return all(self._can_open(each, os.R_OK) for each in volumes)

    def _grow_method(self, disk: Disk, pool: Pool) -> GrowMethod:
        by_copy = _method_by_copy(disk, pool)
        volume = pool.find(disk.volume)  # none while it is recreated from its copy
        if by_copy is GrowMethod.COPY_VOLUME and volume and self._can_open(volume, os.W_OK):
            return GrowMethod.LVEXTEND
        return by_copy or GrowMethod.RESIZE

    def _layers(self, disk: Disk) -> Chain:
        """The chain as tools on this machine open it."""
        top = _file_layer(self._pools.ensure(disk.pool).get(disk.volume), disk.format)
        if not disk.overlay or disk.template is None:
            return (top,)
        if linked := self._find_linked(disk.template.volume):
            return top, linked
        base = self._pools.base.get(disk.template.volume)
        return top, _file_layer(base, disk.template.format)

    def _overlay(self, disk: Disk, template: Template) -> None:
        """Above a link its header names nothing, and could not: libvirt takes no URLs there
        (trap 18). The domain states the chain in any case."""
        backing = None
        if not template.link:
            base = self._pools.base.get(template.volume)
            backing = Backing(path=base.path, format=template.format)
        self._pools.ensure(disk.pool).create(spec_of(disk, backing))
        LOG.info("made %s/%s, an overlay of %s", disk.pool, disk.volume, template.volume)

    def _copy(self, disk: Disk, template: Template) -> None:
        """createXMLFrom reads holes and writes them out; where we can open the host's files, an
        empty volume is filled here instead, by reflink or by a copy that keeps holes."""
        if layer := template.linked_layer:
            self._fill_here(disk, layer, "it does not know the template")
            LOG.info("made %s/%s from %s by copy", disk.pool, disk.volume, template.volume)
            return
        base = self._pools.base.get(template.volume)
        pool = self._pools.ensure(disk.pool)
        fills = pool.capabilities.sparse and disk.format is template.format
        volume = pool.create(spec_of(disk)) if fills else None
        if volume and self._can_fill(volume, base):
            how = _fill(volume, base)
        else:
            if volume:
                pool.delete(volume.name)
            how = self._copy_whole(disk, base, template)
        LOG.info("made %s/%s from %s by %s", disk.pool, disk.volume, base.name, how)

    def _copy_whole(self, disk: Disk, base: Volume, template: Template) -> str:
        """By libvirt, unless it takes the template for what the image's content begins like: then
        it would bring a file of the host into the disk that is named there."""
        pool = self._pools.ensure(disk.pool)
        if base.is_seen_as(template.format):
            pool.create_from(spec_of(disk), base)
            return "copy by libvirt"
        source = _file_layer(base, template.format)
        self._fill_here(disk, source, "libvirt takes the template for something else")
        return "copy"

    def _fill_here(self, disk: Disk, source: Layer, why_not_libvirt: str) -> None:
        """By qemu-img, which is told what everything is."""
        volume = self._pools.ensure(disk.pool).create(spec_of(disk))
        if not self._can_open(volume, os.W_OK):
            raise NeedsHostFiles(f"filling volume {volume.name}", why_not_libvirt, volume.path)
        with own_format.room_for(volume, disk.size):
            qemu_img.fill(_file_layer(volume, disk.format), [source])

    def _fill_from_file(self, disk: Disk, source: Layer, scratch: Path) -> None:
        """Where the host's files cannot be opened here, the disk is written to ``scratch`` and
        sent there as it is. libvirt looks at its bytes then: at a header that qemu-img wrote, or
        at a raw disk, of which it obeys nothing because every format is stated."""
        pool = self._pools.ensure(disk.pool)
        volume = pool.create(spec_of(disk))
        if self._can_open(volume, os.W_OK):
            with own_format.room_for(volume, disk.size):
                qemu_img.fill(_file_layer(volume, disk.format), [source])
            return
        pool.delete(volume.name)
        try:
            with files.explaining_lack_of_space(scratch.parent):
                qemu_img.create(scratch, disk.format, disk.size)
                target = Layer(source=FileSource(path=str(scratch)), format=disk.format)
                qemu_img.fill(target, [source])
            length = scratch.stat().st_size
            pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=length))
            send_file(pool, disk.volume, scratch)
            pool.refresh()
        finally:
            files.remove(scratch)

    def _write(self, disk: Disk, template: Template | None) -> int:
        """A disk of a format that libvirt does not make. How large it became."""
        linked = template.linked_layer if template else None
        base = self._pools.base.get(template.volume) if template and not linked else None
        volume = self._empty_file(disk, base)
        LOG.debug("writing %s/%s here: libvirt makes no %s", disk.pool, disk.volume, disk.format)
        if base and template and _is_like(disk, template):
            _fill(volume, base)
            return written.virtual_size(Path(volume.path), disk.format)
        source = _file_layer(base, template.format) if base and template else linked
        with own_format.room_for(volume, disk.size):
            return own_format.write(Path(volume.path), disk.format, disk.size, source)

    def _empty_file(self, disk: Disk, base: Volume | None) -> Volume:
        """Made by libvirt, so that the pool knows it, as the only thing that libvirt can make
        without looking at what it is."""
        pool = self._pools.ensure(disk.pool)
        volume = pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=0))
        if self._can_fill(volume, base):
            return volume
        pool.delete(volume.name)
        raise NeedsHostFiles(f"a {disk.format} disk", "libvirt cannot make one", volume.path)

    def _can_open(self, volume: Volume, how: int) -> bool:
        return locality.can_open(self._pools.ensure(volume.pool), volume, how)

    def _can_fill(self, volume: Volume, base: Volume | None) -> bool:
        readable = base is None or self._can_open(base, os.R_OK)
        return readable and self._can_open(volume, os.W_OK)


def _refuse_too_small(disk: Disk, template: Template) -> None:
    if disk.size < template.virtual_size:
        needed, enough = format_size(template.virtual_size), enough_for(template.virtual_size)
        raise DiskTooSmall(format_size(disk.size), needed, template.image, enough)


def spec_of(disk: Disk, backing: Backing | None = None) -> VolumeSpec:
    return VolumeSpec(name=disk.volume, format=disk.format, capacity=disk.size, backing=backing)


def _file_layer(volume: Volume, format: DiskFormat) -> Layer:
    device = Path(volume.path).is_block_device()
    return Layer(source=FileSource(path=volume.path, device=device), format=format)


def _is_like(disk: Disk, template: Template) -> bool:
    """A copy of the file is the disk."""
    return (disk.format, disk.size) == (template.format, template.virtual_size)


def _method_by_copy(disk: Disk, pool: Pool) -> GrowMethod | None:
    """The way of a disk that cannot be grown in place, or not without the host's files."""
    if not disk.format.libvirt_makes:
        return GrowMethod.REWRITE_FILE
    return None if pool.capabilities.grows else GrowMethod.COPY_VOLUME


def _fill(volume: Volume, base: Volume) -> str:
    with (
        own_format.room_for(volume, base.allocation),
        open(base.path, "rb") as source,
        open(volume.path, "r+b") as target,
    ):
        how = files.copy_into(source.fileno(), target.fileno())
        files.sync(target.fileno())
        return how


def _needs_whole_image(disk: Disk) -> bool:
    """A raw disk is its own image, and is fetched byte by byte: whatever a guest wrote to its
    beginning, nobody follows it. Any other is made one image first, on its host."""
    return disk.format is not DiskFormat.RAW


def _download_image(pool: Pool, disk: Disk, image: ImageFile, progress: Progress = noop) -> None:
    """Half of the way, if what is fetched is converted here."""
    volume = _make_whole_image(pool, disk) if _needs_whole_image(disk) else pool.get(disk.volume)
    if disk.format is image.format and not image.compress:
        told = scaled(progress, volume.length, disk.size)
        download(pool, volume.name, image.path, told)
        return
    half = disk.size // 2
    fetched = image.path.with_name(f"{image.path.name}.volume")
    files.remove(fetched)
    try:
        download(pool, volume.name, fetched, scaled(progress, volume.length, half))
        layer = Layer(source=FileSource(path=str(fetched)), format=disk.format)
        rest = ToolProgress(progress=progress, total=disk.size - half)
        qemu_img.extract([layer], image.path, image.format, compress=image.compress, told=rest)
    finally:
        files.remove(fetched)


def _remove_whole_image(pool: Pool, disk: Disk) -> None:
    if _needs_whole_image(disk):
        with suppress(VolumeNotFound):
            pool.delete(extracted_name(disk.volume))


def _make_whole_image(pool: Pool, disk: Disk) -> Volume:
    """All its layers in one volume, by createXMLFrom (B18). The header that libvirt follows is
    one that QEMU wrote, and not the guest."""
    _remove_whole_image(pool, disk)
    volume = pool.get(disk.volume)
    if not (disk.format.libvirt_makes and volume.is_seen_as(disk.format)):
        reason = f"libvirt makes no image of a {volume.reported_format} volume"
        raise NeedsHostFiles(f"a snapshot of {disk.role}", reason, volume.path)
    spec = VolumeSpec(
        name=extracted_name(disk.volume), format=disk.format, capacity=volume.capacity
    )
    return pool.create_from(spec, volume)
