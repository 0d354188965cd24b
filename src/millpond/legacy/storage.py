"""LegacyStorage: disks as files of an instance directory, as Nova laid them out (deprecated).

They are attached, grown, snapshotted and deleted where they are; none is ever made. Logical
volumes and RBD images of Nova's need nothing of this: LibvirtStorage serves them (B25).
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from millpond.disks import own_format
from millpond.disks.backend import DiskRequest, ImageFile
from millpond.disks.grow_strategies import GrowStrategy
from millpond.errors import DamagedRecord, StateNotWritable, Unsupported
from millpond.legacy import disk_info
from millpond.legacy.image_files import PLOOP_DESCRIPTOR, PLOOP_IMAGE
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import Chain, FileSource, Layer
from millpond.model.operation import GrowMethod
from millpond.model.server import Disk, TemplateRef
from millpond.model.template import Template
from millpond.system import files, qcow2, qemu_img
from millpond.system.qemu_img import ToolProgress

LOG = logging.getLogger(__name__)

_PLOOP_FILES = (PLOOP_IMAGE, PLOOP_DESCRIPTOR, f"{PLOOP_DESCRIPTOR}.lck")


class LegacyStorage:
    def __init__(self, cache: Path) -> None:
        """``cache`` has the bases: Nova's ``_base``."""
        self._cache = cache

    def plan(self, request: DiskRequest, template: TemplateRef | None) -> Disk:
        _refuse(request.role)

    def create(self, disk: Disk, template: Template | None) -> Disk:
        _refuse(disk.role)

    def create_from_file(self, disk: Disk, image: ImageFile) -> Disk:
        _refuse(disk.role)

    def fill(self, disk: Disk, content: bytes) -> None:
        _refuse(disk.role)

    def chain(self, disk: Disk) -> Chain:
        """By paths: a base that Nova put into the cache need not be known to libvirt's pool."""
        formats = (disk.format, *([disk.template.format] if disk.template else []))
        return tuple(
            Layer(source=FileSource(path=str(path)), format=format)
            for path, format in zip(self._files(disk), formats, strict=True)
        )

    def grow_strategy(self, disk: Disk, method: GrowMethod | None = None) -> GrowStrategy:
        if disk.backend is Backend.PLOOP:
            reason = "a ploop disk is as large as its description says"
            raise Unsupported(f"growing {disk.path}", reason, "add a data disk")
        return _ResizeFile(disk, self.chain(disk))

    def repair(self, disk: Disk) -> None:
        if self.exists(disk) and own_format.close(image_path(disk), disk.format):
            LOG.info("repaired %s, which a crash had left open", disk.path)

    def extract(self, disk: Disk, image: ImageFile, progress: Progress = noop) -> None:
        chain, told = self.chain(disk), ToolProgress(progress=progress, total=disk.size)
        qemu_img.extract(chain, image.path, image.format, compress=image.compress, told=told)

    def needs_temporary_volume(self, _disk: Disk) -> bool:
        return False

    def tidy(self, _disk: Disk) -> None:
        """Nothing is ever left."""

    def merge(self, disk: Disk, above: Layer) -> None:
        path = image_path(disk)
        with files.explaining_lack_of_space(path):
            own_format.merge(path, (above, *self.chain(disk)))
        LOG.info("wrote what lay above it into %s", path)

    def exists(self, disk: Disk) -> bool:
        return image_path(disk).exists()

    def missing(self, disk: Disk) -> list[Path]:
        """What it needs and is not there."""
        return [path for path in self._files(disk) if not path.is_file()]

    def linked(self, disk: Disk) -> Path | None:
        """What of it somebody has put in another place: nobody else's files are moved or become
        templates."""
        needed = self._files(disk)
        places = (*needed, needed[0].parent)
        return next((each for each in places if each.is_symlink()), None)

    def delete(self, disk: Disk) -> None:
        """What is this disk's, its line in disk.info, and the directory once nothing is left."""
        path = Path(disk.path)
        try:
            _remove(path, _PLOOP_FILES if disk.backend is Backend.PLOOP else ())
            with suppress(DamagedRecord):  # then it stays, and so does the directory
                disk_info.forget(path.parent, path.name)
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error
        _remove_if_empty(path.parent)
        LOG.info("removed %s", disk.path)

    def _files(self, disk: Disk) -> list[Path]:
        """What QEMU opens, the disk itself first."""
        base = [self._cache / disk.template.volume] if disk.template else []
        return [image_path(disk), *base]


def give_to_nova(disk: Disk) -> None:
    """As if its driver had made it: it is in disk.info as what it is, and of the user that all
    instances are of, who need not be root."""
    path = Path(disk.path)
    disk_info.put(path.parent, path.name, disk.format)
    nova = path.parent.parent.stat()
    for each, mode in (
        (path.parent, 0o755),
        (path.with_name(disk_info.NAME), 0o644),
        (path, 0o644),
    ):
        with suppress(PermissionError):  # who is not root has it already, or nobody else
            os.chown(each, nova.st_uid, nova.st_gid)
            each.chmod(mode)


class _ResizeFile:
    """In place; of a server that runs, by QEMU."""

    method = GrowMethod.RESIZE

    def __init__(self, disk: Disk, chain: Chain) -> None:
        self._disk = disk
        self._chain = chain

    def size(self) -> int:
        return self._disk.size

    def begin(self, size: int) -> None:
        """It is touched at once."""

    def finish(self, size: int) -> int:
        path = Path(self._disk.path)
        with files.explaining_lack_of_space(path):
            qemu_img.resize(self._chain, size)
        if self._disk.format is DiskFormat.QCOW2:
            return qcow2.read_header(path).virtual_size
        return path.stat().st_size

    def abandon(self) -> None:
        """It has grown or it has not."""


def image_path(disk: Disk) -> Path:
    """The file that QEMU opens."""
    path = Path(disk.path)
    return path / PLOOP_IMAGE if disk.backend is Backend.PLOOP else path


def _remove(path: Path, parts: Sequence[str]) -> None:
    """A file, or a directory of which these are the parts; what else is in it stays, and so does
    the directory."""
    if not parts:
        files.remove(path)
        return
    for name in parts:
        files.remove(path / name)
    _remove_if_empty(path)


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def _refuse(role: str) -> NoReturn:
    raise Unsupported(
        f"making {role} in Nova's legacy layout",
        "it is deprecated, and new disks are volumes of storage pools",
        "configure a pool (docs/storage.md)",
    )
