"""VHDX, beyond what oslo.utils checks (Microsoft's [MS-VHDX] describes the format)."""

import struct
import uuid
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from millpond.images.formats.container import (
    DAMAGED,
    NEEDS_A_PARENT,
    NOT_CLOSED,
    Objection,
    Read,
    if_cut_off,
    pieces,
)

_KiB = 1024
_HEADERS = (64 * _KiB, 128 * _KiB)
_REGIONS = 192 * _KiB

_HEADER = struct.Struct("<4sIQ16s16s16sHH")
_HEADER_SIZE = 4 * _KiB
_REGIONS_SIZE = 64 * _KiB
_CHECKSUM = slice(4, 8)  # of both; counted as zeros in itself
_VERSION = 1
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


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F6_3B78 if byte & 1 else 0)  # Castagnoli's polynomial
    return byte


_CRC32C = tuple(map(_remainder, range(256)))

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
    log_version: int
    version: int


def objections(head: bytes) -> Iterator[Objection]:
    """None: all that matters lies further back."""
    yield from ()


def flaws(read: Read, size: int) -> Iterator[Objection]:
    header, regions = _current_header(read), _regions(read)
    if header is None or regions is None:
        yield DAMAGED
        return
    if header.log != _NO_LOG:
        yield NOT_CLOSED
    yield from if_cut_off((offset + length for offset, length in regions.values()), size)
    parameters = _file_parameters(read, regions.get(_METADATA, _NOWHERE))
    if parameters is None or _BLOCKS not in regions:
        yield DAMAGED
        return
    block_size, flags = parameters
    if flags & _HAS_PARENT:
        yield NEEDS_A_PARENT
    offset, length = regions[_BLOCKS]
    blocks = pieces(read, offset, length // 8, "Q")
    yield from if_cut_off(_ends(chain.from_iterable(blocks), block_size), size)


def _current_header(read: Read) -> _Header | None:
    """The sound one that is newer, as QEMU chooses it. Two of one age may only be the same."""
    blocks = [read(offset, _HEADER_SIZE) for offset in _HEADERS]
    headers = {_Header(*_HEADER.unpack_from(each)) for each in blocks if _is_sound(each, b"head")}
    sound = sorted(
        (each for each in headers if each.version == _VERSION), key=lambda each: each.sequence
    )
    if len(sound) == len(_HEADERS) and sound[0].sequence == sound[1].sequence:
        return None
    return sound[-1] if sound else None


def _regions(read: Read) -> dict[bytes, _Region] | None:
    """From the first of the two tables, the only one that QEMU reads."""
    block = read(_REGIONS, _REGIONS_SIZE)
    (count,) = struct.unpack_from("<I", block, 8)
    if not _is_sound(block, b"regi") or count > _TABLE_ENTRIES:
        return None
    table = block[16 : 16 + count * _ENTRY.size]
    return {id: (offset, length) for id, offset, length, _ in _ENTRY.iter_unpack(table)}


def _is_sound(block: bytes, signature: bytes) -> bool:
    stated = int.from_bytes(block[_CHECKSUM], "little")
    others = block[: _CHECKSUM.start] + bytes(4) + block[_CHECKSUM.stop :]
    return block.startswith(signature) and _crc32c(others) == stated


def _crc32c(content: bytes) -> int:
    found = 0xFFFF_FFFF
    for byte in content:
        found = found >> 8 ^ _CRC32C[(found ^ byte) & 0xFF]
    return found ^ 0xFFFF_FFFF


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
