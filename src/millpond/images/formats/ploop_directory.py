"""A ploop directory to the one file in it that holds the disk.

DiskDescriptor.xml names the files; whoever made the directory wrote it, so no more is taken from
it than the name of a plain file next to it.
"""

import os
import stat
from pathlib import Path

from millpond.errors import FileNotReadable, ImageRefused
from millpond.model.sizes import MiB
from millpond.xml.ploop import PloopDescriptorXml, PloopImageXml

DESCRIPTOR = "DiskDescriptor.xml"

_BUNDLE = "root.hdd"
"""Where Virtuozzo keeps the ploop directory of a container, below its private area."""

_LARGEST = 1 * MiB
"""Of a descriptor: one image takes 300 bytes of it."""

_EXPANDING = "Compressed"
"""The type of a Parallels image; nothing in it is packed. The other one, Plain, is a raw disk."""


def image_file(path: Path) -> Path:
    """The file that holds the disk, if that is all in one. Not yet inspected."""
    directory = _directory(path)
    try:
        descriptor = PloopDescriptorXml.from_xml(_content(directory / DESCRIPTOR))
    except ValueError as error:
        raise ImageRefused(str(path), f"its {DESCRIPTOR} cannot be read: {error}") from error
    image = _only_image(path, directory, descriptor)
    found = directory / _plain_name(path, image)
    _refuse_other_types(path, image, found)
    return found


def open_plainly(path: Path) -> int:
    """A plain file, and not what a link in its place would lead to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror or str(error)
        raise FileNotReadable(path, reason) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotReadable(path, "it is not a plain file")
    return descriptor


def _directory(path: Path) -> Path:
    for each in (path, path / _BUNDLE):
        if os.path.lexists(each / DESCRIPTOR) and (each == path or not each.is_symlink()):
            return each
    raise FileNotReadable(path, f"it is a directory without a {DESCRIPTOR}")


def _content(path: Path) -> bytes:
    with open(open_plainly(path), "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError("it is too long")
    return content


def _only_image(path: Path, directory: Path, descriptor: PloopDescriptorXml) -> PloopImageXml:
    images = descriptor.images
    if not images:
        raise ImageRefused(str(path), f"its {DESCRIPTOR} names no image")
    if len(descriptor.storages) > 1:
        reason = f"its disk is in {len(descriptor.storages)} parts"
        raise ImageRefused(str(path), reason, "join them with the program that made it")
    if len(images) > 1 or len(descriptor.shots) > 1:
        files = max(len(images), len(descriptor.shots))
        reason = f"it has snapshots, which spread its disk over {files} files"
        advised = f"merge them first: ploop snapshot-merge -A {directory / DESCRIPTOR}"
        raise ImageRefused(str(path), reason, advised)
    return images[0]


def _plain_name(path: Path, image: PloopImageXml) -> str:
    name = (image.file or "").strip()
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        reason = f"its {DESCRIPTOR} names no file in it: {name!r}"
        raise ImageRefused(str(path), reason, "put the image next to it, and name it there")
    return name


def _refuse_other_types(path: Path, image: PloopImageXml, file: Path) -> None:
    if (image.type or _EXPANDING) != _EXPANDING:
        advised = f"if it is a raw disk, add that file alone: {file} --disk-format raw"
        raise ImageRefused(str(path), f"its image is of the type {image.type!r}", advised)
