"""What we read of a qcow2 file that we or Nova wrote, its size and what else it needs; and a new
name for its backing file.

docs/interop/qcow2.txt in QEMU describes the format. Only for files whose header no guest and no
stranger wrote, or that were inspected: what is named here is a fact to compare, not to obey.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import ToolFailed

# magic, version, offset and length of the backing file's name, cluster bits, size, encryption
_HEADER = struct.Struct(">4sIQIIQI")
_MAGIC = b"QFI\xfb"
_BACKING, _BACKING_AT = struct.Struct(">QI"), 8  # where that name is, and how long
_FIRST = 72  # where version 2 ends and the fields of version 3 begin
_VERSION_3 = struct.Struct(">QQQII")  # features that a reader must know; …; length of the header
_DATA_FILE = 1 << 2
_EXTENSION = struct.Struct(">II")
_BACKING_FORMAT = 0xE279_2ACA

ENOUGH = 64 * 1024
"""qemu-img writes all of it into the first two KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    virtual_size: int
    backing: str = ""
    """As it is written there: a path or whatever QEMU takes for one."""
    backing_format: str = ""
    """QEMU's name of it; empty if it is left to QEMU to guess."""
    data_file: bool = False
    """Its data is in another file."""
    encrypted: bool = False

    @property
    def stands_alone(self) -> bool:
        return not (self.backing or self.data_file)


def read_header(path: Path) -> Header:
    with open(path, "rb") as file:
        head = file.read(ENOUGH)
    try:
        return _parse(head)
    except (struct.error, ValueError) as error:
        reason = f"{path.name} is not the qcow2 image that it should be"
        raise ToolFailed("qemu-img", reason) from error


def rename_backing(head: bytes, backing: str) -> bytes:
    """The beginning of an overlay with another name for its backing file, or with none. One that
    names none stays as it is."""
    _, _, offset, length, bits, _, _ = _HEADER.unpack_from(head)
    if not _parse(head).backing:
        return head
    name = os.fsencode(backing)
    taken = head[offset + length : offset + len(name)]
    if offset + len(name) > 1 << bits or any(taken):
        reason = f"its header has no room for the name of the backing file {backing}"
        raise ToolFailed("qemu-img", reason)
    whole = name.ljust(length, b"\0")
    renamed = head[:offset] + whole + head[offset + len(whole) :]
    place = _BACKING.pack(offset if name else 0, len(name))
    return renamed[:_BACKING_AT] + place + renamed[_BACKING_AT + len(place) :]


def _parse(head: bytes) -> Header:
    magic, version, offset, length, _bits, size, encryption = _HEADER.unpack_from(head)
    if magic != _MAGIC:
        raise ValueError(magic)
    features, start = 0, _FIRST
    if version > 2:
        features, _compatible, _cleared, _order, start = _VERSION_3.unpack_from(head, _FIRST)
    return Header(
        virtual_size=size,
        backing=os.fsdecode(_piece(head, offset, length)) if offset else "",
        backing_format=_backing_format(head, start),
        data_file=bool(features & _DATA_FILE),
        encrypted=encryption != 0,
    )


def _backing_format(head: bytes, at: int) -> str:
    """From the header's extensions, the last of which has the number 0."""
    kind, length = _EXTENSION.unpack_from(head, at)
    while kind:
        at += _EXTENSION.size
        if kind == _BACKING_FORMAT:
            return _piece(head, at, length).decode("ascii")
        at += -(-length // 8) * 8
        kind, length = _EXTENSION.unpack_from(head, at)
    return ""


def _piece(head: bytes, start: int, length: int) -> bytes:
    if start + length > len(head):
        raise ValueError("it names something beyond its beginning")
    return head[start : start + length]
