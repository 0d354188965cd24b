"""qcow2, beyond what oslo.utils checks (docs/interop/qcow2.txt in QEMU describes the format)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.images.container import DAMAGED, NOT_CLOSED, Objection, Read, entries, if_cut_off

_ALONE = "make an image that stands alone: qemu-img convert -O qcow2"
BACKING_FILE = Objection("it has a backing file", _ALONE)
DATA_FILE = Objection("it keeps its data in another file", _ALONE)
UNKNOWN_FEATURES = Objection(
    "it uses a version or a feature of qcow2 that is not known here",
    "write it anew without special features: qemu-img convert -O qcow2",
)
ENCRYPTED = Objection(
    "its content is encrypted",
    "decrypt it with 'qemu-img convert' where its key is known",
)
MARKED_CORRUPT = Objection(
    "it is marked as corrupt", "'qemu-img check -r all' mends it, if it can be mended"
)

_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_FEATURES = struct.Struct(">Q")
_DIRTY = 1 << 0
_CORRUPT = 1 << 1
_DATA_FILE = 1 << 2
_COMPRESSION_TYPE = 1 << 3
_KNOWN = _DIRTY | _CORRUPT | _DATA_FILE | _COMPRESSION_TYPE

_CLUSTER_BITS = range(9, 22)  # 512 bytes to 2 MiB
_MAX_L1_SIZE = 32 * 1024 * 1024  # QEMU's own limit, in bytes

_OFFSET = 0x00FF_FFFF_FFFF_FE00  # bits 9 to 55 of an entry
_COMPRESSED = 1 << 62
_READS_AS_ZEROS = 1 << 0


class _Header(NamedTuple):
    magic: bytes
    version: int
    backing_offset: int
    backing_length: int
    cluster_bits: int
    size: int
    encryption: int
    l1_entries: int
    l1_offset: int
    refcounts_offset: int
    refcounts_clusters: int
    snapshots: int
    snapshots_offset: int


def objections(head: bytes) -> Iterator[Objection]:
    header = _header(head)
    if header.backing_offset:
        yield BACKING_FILE
    if header.version not in (2, 3):
        yield UNKNOWN_FEATURES
    if header.version == 3:
        yield from _objections_to_features(*_FEATURES.unpack_from(head, _HEADER.size))
    if header.encryption:
        yield ENCRYPTED
    if header.cluster_bits not in _CLUSTER_BITS or header.l1_entries * 8 > _MAX_L1_SIZE:
        yield DAMAGED


def _objections_to_features(features: int) -> Iterator[Objection]:
    if features & _DATA_FILE:
        yield DATA_FILE
    if features & ~_KNOWN:
        yield UNKNOWN_FEATURES
    if features & _CORRUPT:
        yield MARKED_CORRUPT
    if features & _DIRTY:
        yield NOT_CLOSED


def flaws(read: Read, size: int) -> Iterator[Objection]:
    yield from if_cut_off(_ends(read), size)


def _ends(read: Read) -> Iterator[int]:
    """A cluster of data is claimed by its first byte alone, as 'qemu-img check' does: some
    programs leave the last one of a file incomplete."""
    header = _header(read(0, _HEADER.size))
    cluster = 1 << header.cluster_bits
    yield header.refcounts_offset + header.refcounts_clusters * cluster
    yield header.l1_offset + header.l1_entries * 8
    for offset in _tables(read, header):
        yield offset + cluster
        yield _last(entries(read, offset, cluster // 8, ">Q"), header.cluster_bits) + 1


def _header(head: bytes) -> _Header:
    return _Header(*_HEADER.unpack_from(head))


def _tables(read: Read, header: _Header) -> set[int]:
    """The offsets of the L2 tables, each once, whole clusters only: a hostile L1 table cannot
    make us read more than the file is long."""
    found = entries(read, header.l1_offset, header.l1_entries, ">Q")
    return {entry & _OFFSET & -(1 << header.cluster_bits) for entry in found} - {0}


def _last(table: Iterator[int], cluster_bits: int) -> int:
    """Where the last of a table's clusters begins."""
    compressed_offset = (1 << (62 - (cluster_bits - 8))) - 1
    last = 0
    for entry in table:
        if entry & _COMPRESSED:
            last = max(last, entry & compressed_offset)
        elif not entry & _READS_AS_ZEROS:
            last = max(last, entry & _OFFSET)
    return last
