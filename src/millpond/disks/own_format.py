"""Image files of formats that libvirt does not make: written, checked and repaired here."""

from contextlib import AbstractContextManager
from pathlib import Path

from millpond.errors import ToolFailed
from millpond.images.formats import written
from millpond.model.formats import DiskFormat
from millpond.model.layer import Chain, FileSource, Layer
from millpond.model.names import grown_name
from millpond.model.sizes import format_size
from millpond.model.volume import Volume
from millpond.system import files, qemu_img


def write(path: Path, format: DiskFormat, size: int, source: Layer | None) -> int:
    """An image in a file that is there: what ``source`` shows, with zeros behind it. How large
    it became, in whole sectors."""
    qemu_img.create(path, format, size)
    if source:
        qemu_img.fill(Layer(source=FileSource(path=str(path)), format=format), [source])
    files.sync_path(path)
    made = written.virtual_size(path, format)
    if made < size:
        raise ToolFailed("qemu-img", f"it made {format_size(made)} of {format_size(size)}")
    return made


def close(path: Path, format: DiskFormat) -> bool:
    """Mend an image that no server runs on and that a crash left open; whether it was."""
    if not format.stays_open or written.was_closed(path):
        return False
    qemu_img.repair(path, format)
    return True


def merge(path: Path, layers: Chain) -> None:
    """Write the top layer into the next one, which is at ``path``. By a new file in its place if
    QEMU cannot open that for reading and then write to it, as a commit does."""
    if not layers[1].format.stays_open:
        qemu_img.commit(layers)
        return
    whole = path.with_name(grown_name(path.name))
    files.remove(whole)  # of an attempt that was interrupted
    try:
        files.make_like(path, whole)
        qemu_img.extract(layers, whole, layers[1].format, compress=False)
        files.replace(whole, path)
    finally:
        files.remove(whole)


def room_for(volume: Volume, needed: int) -> AbstractContextManager[None]:
    """A full file system in the block is told as the pool's."""
    where, size = f"pool {volume.pool}", format_size(needed)
    return files.explaining_lack_of_space(Path(volume.path), where, size)
