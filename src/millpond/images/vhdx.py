"""VHDX, beyond what oslo.utils checks (Microsoft's [MS-VHDX] describes the format)."""

import struct
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from millpond.images.container import (
    DAMAGED,
    NEEDS_A_PARENT,
    NOT_CLOSED,
    Objection,
    Read,
    entries,
    if_cut_off,
)

_KiB = 1024
_HEADERS = (64 * _KiB, 128 * _KiB)
_REGIONS = 192 * _KiB

_HEADER = struct.Struct("<4sIQ16s16s16s")
_TABLE = struct.Struct("<8sHH")  # of the metadata: signature, reserved, count of entries
_ENTRY = struct.Struct("<16sQII")  # of the regions: id, offset, length, whether required
_ITEM = struct.Struct("<16sIIII")  # of the metadata: id, offset, length, flags, reserved
_PARAMETERS = struct.Struct("<II")  # block size, flags
_TABLE_ENTRIES = 2047
_TABLE_START = 32

_BLOCKS = uuid.UUID("2dc27766-f623-4200-9d64-115e9bfd4a08").bytes_le
_METADATA = uuid.UUID("8b7ca206-4790-4b9a-b8fe-575f050f886e").bytes_le
_FILE_PARAMETERS = uuid.UUID("caa16737-fa36-4d43-b3b6-33f0aa44e76b").bytes_le
_HAS_PARENT = 1 << 1
_NO_LOG = bytes(16)

_STATE = 0b111  # of a block, in the low bits of its entry
_FULLY_PRESENT = 6  # "partially" is for files with a parent alone
_OFFSET = -(1 << 20)  # blocks begin at whole MiB


_Region = tuple[int, int]
"""Its offset in the file, and its length."""
_NOWHERE: _Region = (0, 0)


class _Header(NamedTuple):
    signature: bytes
    checksum: int
    sequence: int
    file_write: bytes
    data_write: bytes
    log: bytes


def objections(head: bytes) -> Iterator[Objection]:
    """None: all that matters lies further back."""
    yield from ()


def flaws(read: Read, size: int) -> Iterator[Objection]:
    if _current_header(read).log != _NO_LOG:
        yield NOT_CLOSED
    regions = _regions(read)
    yield from if_cut_off((offset + length for offset, length in regions.values()), size)
    parameters = _file_parameters(read, regions.get(_METADATA, _NOWHERE))
    if parameters is None or _BLOCKS not in regions:
        yield DAMAGED
        return
    block_size, flags = parameters
    if flags & _HAS_PARENT:
        yield NEEDS_A_PARENT
    offset, length = regions[_BLOCKS]
    blocks = entries(read, offset, length // 8, "<Q")
    yield from if_cut_off(_ends(blocks, block_size), size)


def _current_header(read: Read) -> _Header:
    found = [_Header(*_HEADER.unpack(read(offset, _HEADER.size))) for offset in _HEADERS]
    return max(found, key=lambda header: (header.signature == b"head", header.sequence))


def _regions(read: Read) -> dict[bytes, _Region]:
    _signature, _checksum, count, _reserved = struct.unpack("<4sIII", read(_REGIONS, 16))
    table = read(_REGIONS + 16, min(count, _TABLE_ENTRIES) * _ENTRY.size)
    return {id: (offset, length) for id, offset, length, _ in _ENTRY.iter_unpack(table)}


def _file_parameters(read: Read, region: _Region) -> tuple[int, int] | None:
    """The size of a block, and flags, if the metadata has them."""
    start, length = region
    if length < _TABLE_START:
        return None
    _signature, _reserved, count = _TABLE.unpack(read(start, _TABLE.size))
    table = read(start + _TABLE_START, min(count, _TABLE_ENTRIES) * _ITEM.size)
    for id, offset, *_ in _ITEM.iter_unpack(table):
        if id == _FILE_PARAMETERS and offset + _PARAMETERS.size <= length:
            block_size, flags = _PARAMETERS.unpack(read(start + offset, _PARAMETERS.size))
            return block_size, flags
    return None


def _ends(blocks: Iterator[int], block_size: int) -> Iterator[int]:
    for entry in blocks:
        if entry & _STATE == _FULLY_PRESENT:
            yield (entry & _OFFSET) + block_size
