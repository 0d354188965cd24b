"""What we read of a qcow2 file that we wrote ourselves: its size and whether it stands alone."""

import struct
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import ToolFailed

_HEADER = struct.Struct(">4sIQIIQ")  # magic, version, backing offset and size, cluster bits, size
_MAGIC = b"QFI\xfb"


@dataclass(frozen=True, slots=True)
class Header:
    virtual_size: int
    stands_alone: bool


def read_header(path: Path) -> Header:
    with open(path, "rb") as file:
        content = file.read(_HEADER.size)
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise ToolFailed("qemu-img", f"{path.name} is not the qcow2 image that it should be")
    _magic, _version, backing, _length, _bits, size = _HEADER.unpack(content)
    return Header(virtual_size=size, stands_alone=backing == 0)
