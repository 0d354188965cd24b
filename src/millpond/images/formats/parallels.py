"""Parallels images, which image services call ploop; oslo.utils takes one for raw.

docs/interop/parallels.txt in QEMU describes the format: a header of 64 bytes, then the block
allocation table, whose entries say where in the file each block lies.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.images.formats.container import (
    DAMAGED,
    NOT_CLOSED,
    SECTOR,
    Objection,
    Read,
    if_cut_off,
    largest,
)

OTHER_VERSION = Objection(
    "it is a Parallels image of a version that is not known here",
    "convert it to version 2, or to another format, with the program that made it",
)

_HEADER = struct.Struct("<16sIIIIIQIIIQ")
HEADER_SIZE = _HEADER.size
_OLD = b"WithoutFreeSpace"
_NEW = b"WithouFreSpacExt"
_VERSION = 2
_IN_USE = 0x746F_6E59  # "Ynot", written while somebody has it open


class _Header(NamedTuple):
    magic: bytes
    version: int
    heads: int
    cylinders: int
    block_sectors: int
    blocks: int
    wide_sectors: int
    in_use: int
    data_start: int
    flags: int
    extension: int

    @property
    def sectors(self) -> int:
        """The older kind of header has only 32 bits for it."""
        return self.wide_sectors if self.magic == _NEW else self.wide_sectors & 0xFFFF_FFFF

    @property
    def unit(self) -> int:
        """What an entry of the table counts in: sectors, or in the newer kind blocks."""
        return (self.block_sectors if self.magic == _NEW else 1) * SECTOR


def matches(head: bytes) -> bool:
    return head.startswith((_OLD, _NEW))


def virtual_size(head: bytes) -> int:
    return _header(head).sectors * SECTOR


def is_open(head: bytes) -> bool:
    """Somebody has it open for writing, or died while he had."""
    return _header(head).in_use == _IN_USE


def objections(head: bytes) -> Iterator[Objection]:
    header = _header(head)
    if header.version != _VERSION:
        yield OTHER_VERSION
    if is_open(head):
        yield NOT_CLOSED
    if header.blocks * header.block_sectors < header.sectors:
        yield DAMAGED


def flaws(read: Read, size: int) -> Iterator[Objection]:
    yield from if_cut_off(_ends(read), size)


def _ends(read: Read) -> Iterator[int]:
    header = _header(read(0, _HEADER.size))
    yield _HEADER.size + header.blocks * 4
    last = largest(read, _HEADER.size, header.blocks)
    if last:  # 0: no block was ever written
        yield last * header.unit + header.block_sectors * SECTOR


def _header(head: bytes) -> _Header:
    return _Header(*_HEADER.unpack_from(head))
