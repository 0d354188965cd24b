"""VirtualBox' VDI, beyond what oslo.utils checks (block/vdi.c in QEMU describes the header)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.images.formats.container import (
    DAMAGED,
    NEEDS_A_PARENT,
    Objection,
    Read,
    if_cut_off,
    pieces,
)

_HEADER = struct.Struct("<64s4sIIII256sIIIIIIIQIIII16s16s16s16s")

# An entry of the block map from here on is no block: discarded (this), or never written.
_NO_BLOCK = 0xFFFF_FFFE
_BLOCK = 1024 * 1024  # the only size that QEMU reads
_NOBODY = bytes(16)


class _Header(NamedTuple):
    text: bytes
    magic: bytes
    version: int
    header_size: int
    image_type: int
    image_flags: int
    description: bytes
    map_offset: int
    data_offset: int
    cylinders: int
    heads: int
    sectors: int
    sector_size: int
    unused: int
    disk_size: int
    block_size: int
    block_extra: int
    blocks: int
    blocks_allocated: int
    id: bytes
    last_snapshot: bytes
    link: bytes
    parent: bytes


def objections(head: bytes) -> Iterator[Objection]:
    header = _header(head)
    if header.link != _NOBODY or header.parent != _NOBODY:
        yield NEEDS_A_PARENT
    if header.block_size != _BLOCK or header.blocks * _BLOCK < header.disk_size:
        yield DAMAGED


def flaws(read: Read, size: int) -> Iterator[Objection]:
    yield from if_cut_off(_ends(read), size)


def _ends(read: Read) -> Iterator[int]:
    header = _header(read(0, _HEADER.size))
    yield header.map_offset + header.blocks * 4
    for entries in pieces(read, header.map_offset, header.blocks, "I"):
        blocks = filter(_NO_BLOCK.__gt__, entries)
        yield header.data_offset + (max(blocks, default=-1) + 1) * _BLOCK


def _header(head: bytes) -> _Header:
    return _Header(*_HEADER.unpack_from(head))
