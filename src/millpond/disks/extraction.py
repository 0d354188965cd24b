"""What a disk holds, fetched through libvirt from a host whose files are not here."""

from contextlib import suppress

from millpond.disks.backend import ImageFile
from millpond.errors import NeedsHostFiles, VolumeNotFound
from millpond.libvirt.pool import Pool, download
from millpond.model.formats import DiskFormat
from millpond.model.layer import FileSource, Layer
from millpond.model.names import extracted_name
from millpond.model.server import Disk
from millpond.model.volume import Volume, VolumeSpec
from millpond.system import files, qemu_img
from millpond.system.files import Progress, silent
from millpond.system.qemu_img import Told


def is_beside(disk: Disk) -> bool:
    """A raw disk is its own image, and is fetched byte by byte: whatever a guest wrote to its
    beginning, nobody follows it. Any other is made one image first, on its host."""
    return disk.format is not DiskFormat.RAW


def extract(pool: Pool, disk: Disk, image: ImageFile, progress: Progress = silent) -> None:
    """Half of the way, if what is fetched is converted here."""
    volume = _whole(pool, disk) if is_beside(disk) else pool.get(disk.volume)
    if disk.format is image.format and not image.compress:
        told = files.scaled(progress, volume.length, disk.size)
        download(pool, volume.name, image.path, told)
        return
    half = disk.size // 2
    fetched = image.path.with_name(f"{image.path.name}.volume")
    files.remove(fetched)
    try:
        download(pool, volume.name, fetched, files.scaled(progress, volume.length, half))
        layer = Layer(source=FileSource(path=str(fetched)), format=disk.format)
        rest = Told(progress=progress, total=disk.size - half)
        qemu_img.extract([layer], image.path, image.format, compress=image.compress, told=rest)
    finally:
        files.remove(fetched)


def tidy(pool: Pool, disk: Disk) -> None:
    if is_beside(disk):
        with suppress(VolumeNotFound):
            pool.delete(extracted_name(disk.volume))


def _whole(pool: Pool, disk: Disk) -> Volume:
    """All its layers in one volume, by createXMLFrom (B18). The header that libvirt follows is
    one that QEMU wrote, and not the guest."""
    tidy(pool, disk)
    volume = pool.get(disk.volume)
    if not (disk.format.libvirt_makes and volume.is_seen_as(disk.format)):
        reason = f"libvirt makes no image of a {volume.reported_format} volume"
        raise NeedsHostFiles(f"a snapshot of {disk.role}", reason, volume.path)
    spec = VolumeSpec(
        name=extracted_name(disk.volume), format=disk.format, capacity=volume.capacity
    )
    return pool.create_from(spec, volume)
