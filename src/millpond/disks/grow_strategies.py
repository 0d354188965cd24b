"""How a disk grows: one strategy per method."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from millpond.disks import own_format
from millpond.errors import NeedsHostFiles, NoSpace, PoolBusy, ToolFailed, VolumeNotFound
from millpond.images.formats import written
from millpond.libvirt.locality import can_open
from millpond.libvirt.pool import Pool
from millpond.model.layer import FileSource, Layer
from millpond.model.names import grown_name
from millpond.model.operation import GrowMethod
from millpond.model.server import Disk
from millpond.model.sizes import format_size
from millpond.model.volume import Volume, VolumeSpec
from millpond.system import files, lvm, qemu_img


class GrowStrategy(Protocol):
    """Of one disk. All of it may be called again after it was interrupted anywhere."""

    @property
    def method(self) -> GrowMethod: ...

    def size(self) -> int:
        """How large it is, which the record need not know: somebody may have grown it."""
        ...

    def begin(self, size: int) -> None:
        """What must be complete before the disk itself is touched."""
        ...

    def finish(self, size: int) -> int:
        """Make it larger, and say how large it became."""
        ...

    def abandon(self) -> None:
        """Remove what was begun and lies next to the disk."""
        ...


class _Strategy:
    """Of one disk, next to which nothing lies unless the strategy says otherwise."""

    def __init__(self, pool: Pool, disk: Disk) -> None:
        self._pool = pool
        self._disk = disk

    def begin(self, size: int) -> None:
        """It is touched at once."""

    def abandon(self) -> None:
        """It has grown or it has not."""

    def _volume(self) -> Volume:
        """libvirt may take a file that came into the pool behind its back for something else."""
        volume = self._pool.get(self._disk.volume)
        if not volume.is_seen_as(self._disk.format):
            self._pool.refresh()
            return self._pool.get(self._disk.volume)
        return volume

    def _refuse_unless_open(self, volume: Volume) -> None:
        if not can_open(self._pool, volume, os.W_OK):
            reason = f"libvirt cannot do it in pool {volume.pool}"
            raise NeedsHostFiles(f"growing volume {volume.name}", reason, volume.path)


class Resize(_Strategy):
    method = GrowMethod.RESIZE

    def size(self) -> int:
        """By libvirt, where that takes the disk for what it is."""
        volume = self._volume()
        return volume.capacity if volume.is_seen_as(self._disk.format) else self._disk.size

    def finish(self, size: int) -> int:
        """libvirt grows a disk as what it takes it for, and that a guest may have written: where
        it is mistaken, the disk is grown here, by its stated format."""
        volume = self._volume()
        if volume.is_seen_as(self._disk.format):
            self._pool.resize(volume.name, size)
            return self._volume().capacity
        self._refuse_unless_open(volume)
        with own_format.room_for(volume, size):
            layer = Layer(source=FileSource(path=volume.path), format=self._disk.format)
            qemu_img.resize([layer], size)
        return size


class Lvextend(_Strategy):
    """A logical volume, which libvirt cannot grow."""

    method = GrowMethod.LVEXTEND

    def size(self) -> int:
        return max(self._disk.size, lvm.size(self._volume().path))

    def begin(self, size: int) -> None:
        """A full group is said before anything is touched."""
        self._pool.refresh()
        if size - self._disk.size > (free := self._pool.usage().available):
            raise NoSpace(f"pool {self._pool.name}", format_size(size), format_size(free))

    def finish(self, size: int) -> int:
        """What the new extents held is another server's. They are wiped as a volume of their own,
        before they become the disk's: nothing is ever wiped that a guest can write to, however
        often this is resumed. libvirt learns of it when it can."""
        volume = self._volume()
        self._refuse_unless_open(volume)
        self.abandon()  # of an attempt that was interrupted
        if (missing := size - lvm.size(volume.path)) > 0:
            spec = VolumeSpec(
                name=grown_name(volume.name), format=self._disk.format, capacity=missing
            )
            extents = lvm.extents(self._pool.create(spec).path)
            self.abandon()
            lvm.extend(volume.path, extents)
        with suppress(PoolBusy):
            self._pool.refresh()
        return lvm.size(volume.path)

    def abandon(self) -> None:
        _delete_grown(self._pool, self._disk)


class RewriteFile(_Strategy):
    """A file of a format that nobody can grow in place."""

    method = GrowMethod.REWRITE_FILE

    def size(self) -> int:
        volume = self._volume()
        self._refuse_unless_open(volume)
        return written.virtual_size(Path(volume.path), self._disk.format)

    def finish(self, size: int) -> int:
        """The larger file is complete and compared when it takes the other's name: there is
        always one or the other."""
        volume = self._volume()
        self._refuse_unless_open(volume)
        path, format = Path(volume.path), self._disk.format
        own_format.close(path, format)
        if written.virtual_size(path, format) < size:
            self.abandon()  # of an attempt that was interrupted
            self._rewrite(volume, size)
        return written.virtual_size(path, format)

    def abandon(self) -> None:
        """libvirt may have seen the file, if somebody refreshed the pool."""
        grown = grown_name(self._disk.volume)
        files.remove(Path(self._pool.path) / grown)
        with suppress(VolumeNotFound):
            self._pool.delete(grown)

    def _rewrite(self, volume: Volume, size: int) -> None:
        path, format = Path(volume.path), self._disk.format
        grown = path.with_name(grown_name(path.name))
        source = Layer(source=FileSource(path=volume.path), format=format)
        with own_format.room_for(volume, size):
            files.make_like(path, grown)
            own_format.write(grown, format, size, source)
        made = Layer(source=FileSource(path=str(grown)), format=format)
        if not qemu_img.is_same(source, made):
            raise ToolFailed("qemu-img", f"the larger copy of {volume.name} differs from it")
        os.rename(grown, path)
        files.sync_directory(path.parent)
        self._pool.refresh()


class CopyVolume(_Strategy):
    """A volume that only libvirt can reach, and libvirt cannot grow or rename it."""

    method = GrowMethod.COPY_VOLUME

    def size(self) -> int:
        """As long as there is a copy, the disk may be half made."""
        return self._disk.size if self._copy() else self._volume().capacity

    def begin(self, size: int) -> None:
        """As much as both need together is free, or nothing is done: when the disk is gone, its
        copy takes as much as that did."""
        if self._has_begun():
            return
        self.abandon()
        volume = self._volume()
        if volume.capacity >= size:
            return
        self._pool.refresh()
        if (free := self._pool.usage().available) < size:
            raise NoSpace(f"pool {self._pool.name}", format_size(size), format_size(free))
        self._pool.create_from(self._spec(grown_name(volume.name), volume.capacity), volume)

    def finish(self, size: int) -> int:
        """As long as there is a copy, the disk may be half made. It is removed last."""
        if self._copy() is None:  # whoever gave up has removed it
            self.begin(size)
        if copy := self._copy():
            with suppress(VolumeNotFound):
                self._pool.delete(self._disk.volume)
            self._pool.create_from(self._spec(self._disk.volume, size), copy)
            self._pool.delete(copy.name)
        return self._volume().capacity

    def abandon(self) -> None:
        _delete_grown(self._pool, self._disk)

    def _copy(self) -> Volume | None:
        return self._pool.find(grown_name(self._disk.volume))

    def _has_begun(self) -> bool:
        """An attempt that was interrupted has begun to make the disk from its copy, which holds
        what is on no other volume: the copy is as large as the disk was."""
        copy, disk = self._copy(), self._pool.find(self._disk.volume)
        return copy is not None and (disk is None or disk.capacity > copy.capacity)

    def _spec(self, name: str, capacity: int) -> VolumeSpec:
        return VolumeSpec(name=name, format=self._disk.format, capacity=capacity)


def _delete_grown(pool: Pool, disk: Disk) -> None:
    with suppress(VolumeNotFound):
        pool.delete(grown_name(disk.volume))


STRATEGIES: Mapping[GrowMethod, Callable[[Pool, Disk], GrowStrategy]] = {
    GrowMethod.RESIZE: Resize,
    GrowMethod.LVEXTEND: Lvextend,
    GrowMethod.REWRITE_FILE: RewriteFile,
    GrowMethod.COPY_VOLUME: CopyVolume,
}
