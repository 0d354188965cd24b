"""VMDK, beyond what oslo.utils checks: that the one file is all there is of it.

A VMDK is a text, the descriptor, and the data that it names. Only the kinds that hold both in
one file are taken. oslo.utils lets a parent pass, and an extent without '/' in its name.
"""

import re
import struct
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from millpond.images.formats.container import (
    DAMAGED,
    NEEDS_A_PARENT,
    SECTOR,
    Objection,
    Read,
    if_cut_off,
    largest,
    pieces,
)

_ONE_FILE = "convert it into one file: qemu-img convert -O vmdk -o subformat=streamOptimized"
OTHER_FILES = Objection("its data lies in other files", _ONE_FILE)
ONE_OF_SEVERAL = Objection("it is one of several files that are a VMDK together", _ONE_FILE)

_HEADER = struct.Struct("<4sIIQQQQIQQ")
_MAGIC = b"KDMV"
_AT_THE_END = 0xFFFF_FFFF_FFFF_FFFF  # the directory's place is told by a footer
_MAX_TABLE_ENTRIES = 512  # QEMU's own limit

_SUBFORMATS = ("monolithicsparse", "streamoptimized")
# Searched for in the descriptor in lower case.
_SUBFORMAT = re.compile(r'createtype="([a-z0-9]{1,64})"')
_PARENT_CID = re.compile(r"parentcid=(\w*)")
_NO_PARENT = "ffffffff"
_EXTENT = re.compile(r"^[ \t]*(?:rw|rdonly|noaccess)[ \t]+\d+[ \t]+(\w+)", re.MULTILINE)
# What QEMU goes by when it is left to guess: comments and blank lines, then the version.
_DESCRIPTOR = re.compile(rb"(?:#[^\n]*\n|[ \t\r]*\n)*version=\d", re.IGNORECASE)


class _Header(NamedTuple):
    magic: bytes
    version: int
    flags: int
    sectors: int
    grain_sectors: int
    descriptor_start: int
    descriptor_sectors: int
    table_entries: int
    spare_directory: int
    directory: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sectors, self.grain_sectors, self.table_entries


def matches(head: bytes) -> bool:
    """A descriptor alone; what begins with a header is recognised by oslo.utils."""
    return _DESCRIPTOR.match(head) is not None


def objections(head: bytes) -> Iterator[Objection]:
    if not head.startswith(_MAGIC):
        yield OTHER_FILES
        return
    header = _header(head)
    if not header.grain_sectors or header.table_entries not in range(1, _MAX_TABLE_ENTRIES + 1):
        yield DAMAGED
    if header.sectors == 0:
        yield OTHER_FILES  # so marked for QEMU, which then follows the descriptor
    # QEMU reads to the first zero, however long the header says that the descriptor is.
    text, zero, _ = head[SECTOR:].partition(b"\0")
    if not text:
        yield ONE_OF_SEVERAL
    if not zero:
        yield DAMAGED  # it goes on beyond 64 KiB; honest ones have some 400 bytes
    yield from _objections_to_descriptor(text.decode("ascii", errors="replace").lower())


def _objections_to_descriptor(text: str) -> Iterator[Objection]:
    subformats = _SUBFORMAT.findall(text)
    if len(subformats) != 1 or text.count("createtype") != 1:
        yield DAMAGED
    elif subformats[0] not in _SUBFORMATS:
        yield Objection(f"its VMDK subformat, {subformats[0]}, uses other files", _ONE_FILE)
    if "parentfilenamehint" in text or set(_PARENT_CID.findall(text)) - {_NO_PARENT}:
        yield NEEDS_A_PARENT
    if _EXTENT.findall(text) != ["sparse"]:
        yield OTHER_FILES


def flaws(read: Read, size: int) -> Iterator[Objection]:
    header = _header(read(0, _HEADER.size))
    if header.directory == _AT_THE_END:
        footer = _header(read(size - 2 * SECTOR, _HEADER.size))
        if footer.shape != header.shape:
            yield DAMAGED  # QEMU would go by the footer
        header = footer
    yield from if_cut_off(_ends(header, read), size)


def _ends(header: _Header, read: Read) -> Iterator[int]:
    """A grain is claimed by its first byte alone: the last one of a file may be incomplete."""
    count = -(-header.sectors // (header.grain_sectors * header.table_entries))
    yield header.directory * SECTOR + count * 4
    directory = pieces(read, header.directory * SECTOR, count, "I")
    for table in filter(None, chain.from_iterable(directory)):
        yield table * SECTOR + header.table_entries * 4
        yield largest(read, table * SECTOR, header.table_entries) * SECTOR + 1


def _header(head: bytes) -> _Header:
    return _Header(*_HEADER.unpack_from(head))
