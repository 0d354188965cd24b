"""LibvirtStorage: disks as volumes of a storage pool, overlays or full copies (specs 001)."""

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from millpond.backends.backend import DiskWanted, PoolsOf
from millpond.errors import DiskTooSmall, Unsupported, VolumeNotFound
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import Chain, FileSource, Layer, VolumeSource
from millpond.model.names import volume_name
from millpond.model.server import Disk
from millpond.model.sizes import enough_for, format_size
from millpond.model.template import Template
from millpond.model.volume import Backing, Volume, VolumeSpec
from millpond.storage.pool import Pool
from millpond.system import files, lvm, qemu_img

LOG = logging.getLogger(__name__)


class LibvirtStorage:
    """Decides by what the pool can do, never by its name or type."""

    def __init__(self, backend: Backend, pools: PoolsOf, *, pool: str = "") -> None:
        self._backend = backend
        self._pools = pools
        self._own_pool = pool

    def plan(self, wanted: DiskWanted) -> Disk:
        pool = (
            self._pools.named(self._own_pool)
            if self._own_pool
            else self._pools.for_role(wanted.role)
        )
        return Disk(
            role=wanted.role,
            backend=self._backend,
            pool=pool.name,
            volume=volume_name(wanted.server, wanted.role),
            format=self._backend.disk_format,
            size=wanted.size,
            target=wanted.target,
            content=wanted.content,
            template=wanted.template,
            overlay=bool(
                wanted.template and self._backend is Backend.QCOW2 and pool.capabilities.overlays
            ),
        )

    def create(self, disk: Disk, template: Template | None) -> Disk:
        if template:
            _refuse_too_small(disk, template)
        self.delete(disk)  # the record came first: a volume of this name is our own half-made one
        pool = self._pools.named(disk.pool)
        if template is None:
            pool.create(_spec(disk))
            LOG.info("made %s/%s, empty", disk.pool, disk.volume)
        elif disk.overlay:
            self._overlay(disk, self._pools.base.get(template.volume), template)
        else:
            self._copy(disk, self._pools.base.get(template.volume), template)
        made = pool.get(disk.volume)
        return replace(disk, size=made.capacity) if _is_seen_as(made, disk.format) else disk

    def fill(self, disk: Disk, content: bytes) -> None:
        self._pools.named(disk.pool).upload(disk.volume, content)

    def grows_beneath(self, disk: Disk) -> bool:
        return not self._pools.named(disk.pool).capabilities.sparse

    def grow(self, disk: Disk, size: int) -> int:
        pool = self._pools.named(disk.pool)
        volume = pool.get(disk.volume)
        if not pool.capabilities.grows:
            _extend(pool, volume, disk.size, size)
            size = pool.get(disk.volume).capacity
        elif _is_seen_as(volume, disk.format):
            pool.resize(disk.volume, size)
        else:
            _resize(volume, disk.format, size)
        LOG.info("grew %s/%s to %s", disk.pool, disk.volume, format_size(size))
        return size

    def chain(self, disk: Disk) -> Chain:
        top = Layer(source=self._pools.named(disk.pool).source(disk.volume), format=disk.format)
        if not disk.overlay or disk.template is None:
            return (top,)
        base = VolumeSource(pool=disk.template.pool, volume=disk.template.volume)
        return top, Layer(source=base, format=disk.template.format)

    def extract(self, disk: Disk, target: Path, format: DiskFormat, *, compress: bool) -> None:
        """By qemu-img with every layer stated: createXMLFrom would take a raw disk for what its
        first bytes say, and a guest writes those (trap 2)."""
        qemu_img.extract(self._layers(disk), target, format, compress=compress)

    def merge(self, disk: Disk, above: Layer) -> None:
        layers = (above, *self._layers(disk))
        volume = self._pools.named(disk.pool).get(disk.volume)
        with files.explaining_lack_of_space(Path(volume.path), f"pool {disk.pool}"):
            if disk.format is DiskFormat.PLOOP:
                _rewrite(Path(volume.path), layers)
            else:
                qemu_img.commit(layers)
        LOG.info("wrote what lay above it into %s/%s", disk.pool, disk.volume)

    def exists(self, disk: Disk) -> bool:
        return self._pools.named(disk.pool).find(disk.volume) is not None

    def delete(self, disk: Disk) -> None:
        with suppress(VolumeNotFound):
            self._pools.named(disk.pool).delete(disk.volume)

    def _layers(self, disk: Disk) -> Chain:
        """The chain as tools on this machine open it."""
        top = _opened(self._pools.named(disk.pool).get(disk.volume), disk.format)
        if not disk.overlay or disk.template is None:
            return (top,)
        base = self._pools.base.get(disk.template.volume)
        return top, _opened(base, disk.template.format)

    def _overlay(self, disk: Disk, base: Volume, template: Template) -> None:
        backing = Backing(path=base.path, format=template.format)
        self._pools.named(disk.pool).create(_spec(disk, backing))
        LOG.info("made %s/%s, an overlay of %s", disk.pool, disk.volume, base.name)

    def _copy(self, disk: Disk, base: Volume, template: Template) -> None:
        """createXMLFrom reads holes and writes them out; where we can open the host's files, an
        empty volume is filled here instead, by reflink or by a copy that keeps holes."""
        pool = self._pools.named(disk.pool)
        fills = pool.capabilities.sparse and disk.format is template.format
        volume = pool.create(_spec(disk)) if fills else None
        if volume and _can_open(base.path, os.R_OK) and _can_open(volume.path, os.W_OK):
            how = _fill(volume, base)
        else:
            if volume:
                pool.delete(volume.name)
            how = _copy_into(pool, disk, base, template)
        LOG.info("made %s/%s from %s by %s", disk.pool, disk.volume, base.name, how)


def _refuse_too_small(disk: Disk, template: Template) -> None:
    if disk.size < template.virtual_size:
        needed, enough = format_size(template.virtual_size), enough_for(template.virtual_size)
        raise DiskTooSmall(format_size(disk.size), needed, template.image, enough)


def _spec(disk: Disk, backing: Backing | None = None) -> VolumeSpec:
    return VolumeSpec(name=disk.volume, format=disk.format, capacity=disk.size, backing=backing)


def _opened(volume: Volume, format: DiskFormat) -> Layer:
    device = Path(volume.path).is_block_device()
    return Layer(source=FileSource(path=volume.path, device=device), format=format)


def _can_open(path: str, how: int) -> bool:
    """Tried on a file whose name nobody else could have: not deduced from the host's address."""
    return os.access(path, how)


def _fill(volume: Volume, base: Volume) -> str:
    needed = format_size(base.allocation)
    with (
        files.explaining_lack_of_space(Path(volume.path), f"pool {volume.pool}", needed),
        open(base.path, "rb") as source,
        open(volume.path, "r+b") as target,
    ):
        how = files.copy_into(source.fileno(), target.fileno())
        files.sync(target.fileno())
        return how


def _rewrite(path: Path, layers: Chain) -> None:
    """By a new file in the old one's place: QEMU cannot open a parallels image for reading and
    then write to it, which a commit does."""
    whole = path.with_name(f"{path.name}.whole")
    qemu_img.extract(layers, whole, layers[1].format, compress=False)
    files.replace(whole, path)


def _is_seen_as(volume: Volume, format: DiskFormat) -> bool:
    """Whether libvirt takes it for what it is. Else what it says and does of it follows bytes
    that a guest or the maker of an image wrote (trap 2)."""
    return volume.reported_format in (None, format)


def _copy_into(pool: Pool, disk: Disk, base: Volume, template: Template) -> str:
    """By libvirt, unless it takes the template for what the image's content begins like: then it
    would bring a file of the host into the disk that is named there."""
    if _is_seen_as(base, template.format):
        pool.create_from(_spec(disk), base)
        return "copy by libvirt"
    volume = pool.create(_spec(disk))
    _refuse_unless_open(volume, "filling")
    source, target = _opened(base, template.format), _opened(volume, disk.format)
    with files.explaining_lack_of_space(Path(volume.path), f"pool {volume.pool}"):
        qemu_img.copy(source, target)
    return "copy"


def _resize(volume: Volume, format: DiskFormat, size: int) -> None:
    """As what it is: libvirt would follow a header that a guest wrote, and grow a file of the
    host that is named there."""
    _refuse_unless_open(volume, "growing")
    with files.explaining_lack_of_space(Path(volume.path), f"pool {volume.pool}"):
        qemu_img.resize(Path(volume.path), format, size)


def _refuse_unless_open(volume: Volume, doing: str) -> None:
    if not _can_open(volume.path, os.W_OK):
        raise Unsupported(
            f"{doing} volume {volume.name}",
            f"libvirt cannot do it in pool {volume.pool}, and {volume.path} cannot be opened here",
            "run this on the host itself",
        )


def _extend(pool: Pool, volume: Volume, end: int, size: int) -> None:
    """A logical volume, which libvirt cannot grow. What the new extents held is another
    server's: all behind the ``end`` that the record knows is wiped."""
    _refuse_unless_open(volume, "growing")
    lvm.extend(volume.path, size, pool.name)
    lvm.zero(volume.path, end)
    pool.refresh()
