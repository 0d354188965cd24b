"""The first bytes of a file to the formats that they can be taken for."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from oslo_utils.imageutils.format_inspector import ALL_FORMATS, FileInspector, ImageFormatError

from millpond.images.formats import parallels, vmdk
from millpond.images.formats.container import AGAIN, Objection
from millpond.model.formats import ImageFormat

# Not formats of an image: raw fits everything, and gpt means no more than a partition table
# (or any other boot sector), which is what a raw disk and a bootable ISO should have.
_NOT_FORMATS = {"raw", "gpt"}

# How a parser fails on bytes that nobody foresaw.
PARSER_ERRORS = (ImageFormatError, struct.error, ValueError, LookupError, AttributeError)


class _Signature(NamedTuple):
    name: str
    magic: bytes
    offset: int = 0


# What QEMU or libvirt would recognise and oslo.utils does not (block/*.c in QEMU,
# src/storage_file/storage_file_probe.c in libvirt).
_OTHER_FORMATS = (
    _Signature("bochs", b"Bochs Virtual HD Image"),
    _Signature("cloop", b"#!/bin/sh\n#V2.0 Format\n"),
    _Signature("cow", b"OOOM"),
    _Signature("an extent of a VMDK", b"COWD"),
)
# What people download, and forget to unpack.
_PACKED = (
    _Signature("gzip", b"\x1f\x8b\x08"),
    _Signature("xz", b"\xfd7zXZ\0"),
    _Signature("zstd", b"\x28\xb5\x2f\xfd"),
    _Signature("bzip2", b"1AY&SY", 4),
    _Signature("zip", b"PK\x03\x04"),
    _Signature("7z", b"7z\xbc\xaf\x27\x1c"),
    _Signature("tar", b"ustar", 257),
)

PACKED_FOR_LINUX = frozenset({"gzip", "xz", "zstd", "bzip2"})
"""What Linux unpacks itself when it boots."""


def recognise(head: bytes) -> frozenset[str]:
    """The names of the formats; none means that it can only be raw. A name that an image may
    be declared with is that name."""
    return frozenset(_find_signatures(head))


def objection_to(declared: ImageFormat, found: frozenset[str]) -> Objection:
    """What to say of an image that turned out to be something else."""
    names = " and ".join(sorted(found))
    if len(found) > 1:
        return Objection(f"its content can be read as {names}", AGAIN)
    if not found:
        advised = "if it is a raw disk, add it with --disk-format raw"
        return Objection(f"it was declared as {declared}, but its content is not", advised)
    if found & {signature.name for signature in _PACKED}:
        return Objection(
            f"its content is packed ({names})",
            "unpack it first, or give its file the suffix .gz, .xz or .zst",
        )
    if found & set(ImageFormat):
        advised = f"if that is what you expect, add it with --disk-format {names}"
    else:
        advised = "convert it to a format that is supported: qemu-img convert -O qcow2"
    return Objection(f"it was declared as {declared}, but its content is {names}", advised)


def _find_signatures(head: bytes) -> Iterator[str]:
    for name, inspector in ALL_FORMATS.items():
        if name not in _NOT_FORMATS and _matches(inspector(), head):
            yield name
    if parallels.matches(head):
        yield ImageFormat.PLOOP.value
    if vmdk.matches(head):
        yield ImageFormat.VMDK.value
    for signature in (*_OTHER_FORMATS, *_PACKED):
        if head.startswith(signature.magic, signature.offset):
            yield signature.name


def _matches(inspector: FileInspector, head: bytes) -> bool:
    """An inspector that fails on the rest of a header has recognised its beginning all the same;
    one that cannot even answer has not."""
    with suppress(*PARSER_ERRORS):
        inspector.eat_chunk(head)
    try:
        return inspector.format_match
    except PARSER_ERRORS:
        return False
