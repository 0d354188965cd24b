"""VHD, which QEMU calls vpc, beyond what oslo.utils checks.

Every VHD ends with a footer. One that grows has a copy of it at its beginning, too; one of fixed
size has the disk's own bytes there, so that oslo.utils takes it for raw.
(Microsoft's "Virtual Hard Disk Image Format Specification".)
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.images.formats.container import (
    CUT_OFF,
    DAMAGED,
    NEEDS_A_PARENT,
    SECTOR,
    Objection,
    Read,
)

_FOOTER = struct.Struct(">8sIIQI4sIIQQHBBI")
_CHECKSUM = slice(64, 68)
_COOKIE = b"conectix"
_FIXED = 2
_GROWING = 3
_DIFFERENCES = 4

# Virtual PC and old QEMU count a disk's size in cylinders, heads and sectors, others in bytes
# (block/vpc.c in QEMU), and nobody can use the former above the largest geometry. Of a creator
# that is in neither list, QEMU 7.2 takes the geometry and QEMU 10 the bytes.
_COUNT_BY_GEOMETRY = (b"vpc ", b"qemu")
_COUNT_IN_BYTES = (b"win ", b"qem2", b"d2v ", b"CTXS", b"tap\0", b"wa\0\0")
_LARGEST_GEOMETRY = 65535 * 16 * 255


class _Footer(NamedTuple):
    cookie: bytes
    features: int
    version: int
    data_offset: int
    made: int
    creator: bytes
    creator_version: int
    creator_system: int
    original_size: int
    size: int
    cylinders: int
    heads: int
    track_sectors: int
    kind: int


def is_footer(sector: bytes) -> bool:
    return len(sector) == SECTOR and sector.startswith(_COOKIE)


def virtual_size(sector: bytes) -> int:
    """What QEMU makes of it, which is what a guest will see; where its versions differ, the
    smaller size, which each of them reaches."""
    footer = _footer(sector)
    geometry = footer.cylinders * footer.heads * footer.track_sectors
    if footer.creator in _COUNT_IN_BYTES or geometry == _LARGEST_GEOMETRY:
        return footer.size
    if footer.creator in _COUNT_BY_GEOMETRY:
        return geometry * SECTOR
    return min(footer.size, geometry * SECTOR)


def objections(head: bytes) -> Iterator[Objection]:
    kind = _footer(head).kind
    if kind == _DIFFERENCES:
        yield NEEDS_A_PARENT
    elif kind != _GROWING or not _is_sound(head[:SECTOR]):
        yield DAMAGED


def objections_to_end(last: bytes, size: int, *, grows: bool) -> Iterator[Objection]:
    """What the last sector of a file of this size gives away."""
    if not is_footer(last):
        yield CUT_OFF
    if not _is_sound(last):
        yield DAMAGED
    if not grows and (_footer(last).kind != _FIXED or virtual_size(last) > size - SECTOR):
        yield DAMAGED


def flaws(read: Read, size: int) -> Iterator[Objection]:
    """None: the footer at its end proves a file to be complete."""
    yield from ()


def _is_sound(sector: bytes) -> bool:
    """The checksum is the complement of the sum of all other bytes."""
    others = sum(sector) - sum(sector[_CHECKSUM])
    return struct.pack(">I", ~others & 0xFFFF_FFFF) == sector[_CHECKSUM]


def _footer(sector: bytes) -> _Footer:
    return _Footer(*_FOOTER.unpack_from(sector))
