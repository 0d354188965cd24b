"""One disk image in an instance directory, described by what Nova itself wrote down.

A raw disk is never looked into: its bytes are the guest's. Of a qcow2 disk the header is read,
which no guest can write, and what it names must be a base of Nova's.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import DiskRefused, ToolFailed
from millpond.legacy.disk import LegacyDisk
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import TemplateRef
from millpond.system import qcow2
from millpond.xml.ploop import PloopDescriptorXml

PLOOP_IMAGE = "root.hds"
PLOOP_DESCRIPTOR = "DiskDescriptor.xml"

# By SHA-1 of the image's id, in old days with the size in GiB; and Nova's own blank disks.
_BASE = re.compile(r"[0-9a-f]{40}(_\d+)?|swap_\d+|ephemeral_\w+")
_BASE_FORMATS = (DiskFormat.RAW, DiskFormat.QCOW2)
_PLOOP_FORMATS = {"Compressed": DiskFormat.PLOOP, "Plain": DiskFormat.RAW}
_SECTOR = 512


def is_nova_base(name: str) -> bool:
    return _BASE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCache:
    """Nova's ``_base``, which is our pool of templates (B16)."""

    path: Path
    pool: str


def describe(path: Path, format: str, cache: ImageCache) -> LegacyDisk:
    """By the format that is on record for it. Raises DiskRefused."""
    if path.is_dir():
        return _ploop(path)
    if format == DiskFormat.RAW:
        return _describe(path, Backend.RAW, DiskFormat.RAW, path.stat().st_size)
    if format == DiskFormat.QCOW2:
        return _qcow2(path, cache)
    raise DiskRefused(str(path), f"its format is on record as {format!r}, which is not known here")


def _qcow2(path: Path, cache: ImageCache) -> LegacyDisk:
    header = _header(path)
    if header.data_file:
        raise DiskRefused(str(path), "it keeps its data in another file")
    if header.encrypted:
        raise DiskRefused(str(path), "it is encrypted")
    base = _base(path, header, cache) if header.backing else None
    return _describe(path, Backend.QCOW2, DiskFormat.QCOW2, header.virtual_size, base)


def _base(disk: Path, header: qcow2.Header, cache: ImageCache) -> TemplateRef:
    """Raw unless the disk's header says otherwise, as Nova has it written there."""
    base = Path(header.backing)
    if not is_nova_base(base.name) or not _is_in(base, cache.path):
        reason = f"it is backed by {header.backing!r}, which is no base in {cache.path}"
        raise DiskRefused(str(disk), reason)
    if not base.is_file():
        raise DiskRefused(str(disk), f"its base {base} is missing")
    format = header.backing_format or DiskFormat.RAW
    if format not in _BASE_FORMATS:
        raise DiskRefused(str(disk), f"its base is of format {format!r}, which is not known here")
    if format == DiskFormat.QCOW2 and not _header(base).stands_alone:
        raise DiskRefused(str(disk), f"its base {base} needs another file itself")
    return TemplateRef(pool=cache.pool, volume=base.name, format=DiskFormat(format))


def _ploop(path: Path) -> LegacyDisk:
    """A directory with one image and its description, which Nova had written by ploop."""
    try:
        descriptor = PloopDescriptorXml.from_xml((path / PLOOP_DESCRIPTOR).read_bytes())
    except (OSError, ValueError) as error:
        reason = f"it is a directory without a {PLOOP_DESCRIPTOR} that can be read"
        raise DiskRefused(str(path), reason) from error
    if len(descriptor.images) != 1 or not descriptor.sectors:
        raise DiskRefused(str(path), "it has snapshots, or is damaged")
    (image,) = descriptor.images
    format = _PLOOP_FORMATS.get(image.type or "")
    if format is None or image.file != PLOOP_IMAGE or not (path / PLOOP_IMAGE).is_file():
        raise DiskRefused(str(path), f"its one image is not {PLOOP_IMAGE} of a known type")
    return _describe(path, Backend.PLOOP, format, descriptor.sectors * _SECTOR)


def _describe(
    path: Path,
    layout: Backend,
    format: DiskFormat,
    size: int,
    base: TemplateRef | None = None,
) -> LegacyDisk:
    return LegacyDisk(
        role=path.name, path=str(path), layout=layout, format=format, size=size, base=base
    )


def _header(path: Path) -> qcow2.Header:
    try:
        return qcow2.read_header(path)
    except ToolFailed as error:
        raise DiskRefused(str(path), error.reason) from error


def _is_in(path: Path, directory: Path) -> bool:
    return path.is_absolute() and os.path.realpath(path.parent) == os.path.realpath(directory)
