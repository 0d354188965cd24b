"""Images that we wrote ourselves: how large a disk each holds, and that it is all there.

A tool that lost something says nothing of it: look.
"""

import os
import struct
from pathlib import Path

from millpond.errors import ToolFailed
from millpond.images.formats import parallels
from millpond.model.formats import DiskFormat
from millpond.system import qcow2


def virtual_size(path: Path, format: DiskFormat) -> int:
    match format:
        case DiskFormat.RAW:
            return path.stat().st_size
        case DiskFormat.QCOW2:
            return _size_of_qcow2(path)
        case DiskFormat.PLOOP:
            return _size_of_ploop(path)
    raise ToolFailed("qemu-img", f"{format} is no format that is written here")


def was_closed(path: Path) -> bool:
    """Whether a ploop image that nobody uses was left as it should be."""
    with open(path, "rb") as file:
        head = file.read(parallels.HEADER_SIZE)
    if len(head) < parallels.HEADER_SIZE:
        raise ToolFailed("qemu-img", f"{path.name} is not the ploop image that it should be")
    return not parallels.is_open(head)


def _size_of_qcow2(path: Path) -> int:
    header = qcow2.read_header(path)
    if not header.stands_alone:
        raise ToolFailed("qemu-img", f"{path.name} does not stand alone")
    return header.virtual_size


def _size_of_ploop(path: Path) -> int:
    """An image that was not closed has its size all the same."""
    with open(path, "rb") as file:

        def read(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        head = read(0, parallels.HEADER_SIZE)
        try:
            whole = parallels.matches(head) and not any(parallels.flaws(read, path.stat().st_size))
            size = parallels.virtual_size(head)
        except struct.error:
            whole = False
    if not whole:
        raise ToolFailed("qemu-img", f"{path.name} is not the ploop image that it should be")
    return size
