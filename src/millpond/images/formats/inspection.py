"""Image to inspected image: its bytes are proven to be what it was declared to be (B11, B46).

Recognition and the checks that every format needs are oslo.utils'; what these leave out is in
the module of each format. Nothing here starts a program, and no program may open an image that
has not passed.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from oslo_utils.imageutils.format_inspector import ALL_FORMATS, FileInspector, SafetyCheckFailed

from millpond.errors import ImageRefused
from millpond.images.formats import parallels, qcow2, vdi, vhd, vhdx, vmdk
from millpond.images.formats.container import (
    AGAIN,
    CUT_OFF,
    DAMAGED,
    LARGEST_TABLES,
    SECTOR,
    TOO_LARGE_TABLES,
    Container,
    Objection,
    Read,
)
from millpond.images.formats.recognition import (
    PACKED_FOR_LINUX,
    PARSER_ERRORS,
    objection_to,
    recognise,
)
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.sizes import GiB, format_size

HEAD = 64 * 1024
"""What is looked at first. All formats show themselves in it, ISO 9660 as the last (34 KiB).
oslo.utils' inspectors are fed in pieces of this size, however the bytes arrive: what they find
depends on how their input is cut up."""

LARGEST = 64 * 1024 * GiB
"""VHDX ends here, and clouds sell no larger volumes. A header that says more is a mistake, or
is meant to exhaust whoever allocates, walks or converts it."""

LARGEST_TO_BOOT = 2 * GiB
"""Of a kernel or a ramdisk. QEMU takes a kernel into memory whole, and the guest's memory does not
limit it; a ramdisk must end below here (initrd_addr_max in Linux' boot protocol)."""

EMPTY = Objection("it is empty", AGAIN)
NO_MORE_THAN_A_HEADER = Objection("it is cut off in the middle of its header", AGAIN)
NO_DISK = Objection("it holds a disk of no size", AGAIN)
# Disks consist of sectors. QEMU would make up the missing bytes, a block device could not hold
# such a disk, and a length like this is the only sign that a raw image was cut off, or is not an
# image at all but, say, the web server's page about an error.
BROKEN_SECTOR = Objection(
    "its length is not a multiple of 512 bytes, so that it cannot be all of a disk",
    f"{AGAIN}; if it is meant to be so, fill its last sector up: truncate -s %512 FILE",
)

_CONTAINERS: Mapping[DiskFormat, Container] = {
    DiskFormat.QCOW2: qcow2,
    DiskFormat.VMDK: vmdk,
    DiskFormat.VDI: vdi,
    DiskFormat.VPC: vhd,
    DiskFormat.VHDX: vhdx,
    DiskFormat.PLOOP: parallels,
}

# oslo.utils' checks by its names. Ours come first and say more; these are a second line.
_FAILED_CHECKS = {
    "backing_file": qcow2.BACKING_FILE,
    "data_file": qcow2.DATA_FILE,
    "unknown_features": qcow2.UNKNOWN_FEATURES,
    "descriptor": vmdk.OTHER_FILES,
    "footer": CUT_OFF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionResult:
    format: DiskFormat
    virtual_size: int


class Inspection:
    """Of one image, chunk by chunk. Raises ImageRefused as soon as that is certain."""

    def __init__(self, declared: ImageFormat, name: str) -> None:
        self._declared = declared
        self._name = name
        self._size = 0
        self._unseen = b""
        self._head = b""
        self._last_sector = b""
        self._has_header = False
        self._inspector: FileInspector | None = None
        self._is_settled = False

    def eat(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._last_sector = (self._last_sector + chunk[-SECTOR:])[-SECTOR:]
        if self._is_settled:
            return
        unseen = self._unseen + chunk
        whole = len(unseen) - len(unseen) % HEAD
        for start in range(0, whole, HEAD):
            self._see(unseen[start : start + HEAD])
        self._unseen = unseen[whole:]

    def look_at(self, read: Read, size: int) -> InspectionResult:
        """All of it, of an image that is not taken but linked: only what must be seen is read."""
        self._look_at_header(read, size)
        finding = self._look_at_end(read, size)
        self.look_through(read)
        return finding

    def measure(self, read: Read, size: int, most: int) -> int:
        """The size of the disk, from the header, or a footer in its place, alone; 0 if the header
        does not end within ``most`` bytes. The image is not proven by it."""
        self._look_at_header(read, min(size, most))
        if not self._is_settled and most < size:
            return 0
        if self._is_settled and self._has_header:
            return self._finding.virtual_size
        return self._look_at_end(read, size).virtual_size

    def _look_at_header(self, read: Read, end: int) -> None:
        """In few pieces, each longer than all before: a read may be a request, or a process."""
        while not self._is_settled and self._size < end:
            chunk = read(self._size, min(max(HEAD, 7 * self._size), end - self._size))
            self._refuse_if(() if chunk else (CUT_OFF,))
            self.eat(chunk)

    def _look_at_end(self, read: Read, size: int) -> InspectionResult:
        self._last_sector = read(max(0, size - SECTOR), min(SECTOR, size))
        self._size = size
        return self.finish(size)

    def finish(self, size: int) -> InspectionResult:
        """The image has ended and should have had this size."""
        if self._size != size:
            reason = f"{format_size(self._size)} arrived instead of {format_size(size)}"
            raise self._refusal(Objection(reason, AGAIN))
        if not size:
            raise self._refusal(EMPTY)
        if self._unseen:
            self._see(self._unseen)
        if not self._is_settled:
            self._settle()
        self._refuse_if(self._objections_to_end())
        self._refuse_if(self._objections_to_virtual_size())
        return self._finding

    def look_through(self, read: Read) -> None:
        """The second look, at the complete image: is every place in it that its tables name?"""
        container = _CONTAINERS.get(self._declared.content)
        if container is None:
            return
        left = LARGEST_TABLES

        def read_some(offset: int, length: int) -> bytes:
            nonlocal left
            left -= length
            self._refuse_if((TOO_LARGE_TABLES,) if left < 0 else ())
            return read(offset, length)

        try:
            self._refuse_if(container.flaws(read_some, self._size))
        except (struct.error, ValueError) as error:  # a table ends before it should
            raise self._refusal(DAMAGED) from error

    def _see(self, piece: bytes) -> None:
        if self._is_settled:
            return
        if self._head:
            self._feed(piece)
        else:
            self._see_head(piece)
        if self._inspector is None or self._inspector.complete:
            self._settle()

    def _see_head(self, head: bytes) -> None:
        self._head = head.ljust(SECTOR, b"\0")
        found = recognise(head) - _immaterial(self._declared)
        if found not in _acceptable(self._declared):
            raise self._refusal(objection_to(self._declared, found))
        self._has_header = bool(found)
        if not self._has_header:
            return
        if container := _CONTAINERS.get(self._declared.content):
            self._refuse_if(container.objections(self._head))
        if inspector := ALL_FORMATS.get(self._declared.value):
            self._inspector = inspector()
            self._feed(head)

    def _feed(self, piece: bytes) -> None:
        assert self._inspector is not None  # without one, the head settles it
        try:
            self._inspector.eat_chunk(piece)
        except PARSER_ERRORS as error:
            raise self._refusal(DAMAGED) from error

    def _settle(self) -> None:
        """All was seen that the header has to say, or the image has ended."""
        self._is_settled = True
        if self._inspector:
            self._check_safety(self._inspector)
        if self._has_header:
            self._refuse_if(self._objections_to_virtual_size())

    def _check_safety(self, inspector: FileInspector) -> None:
        inspector.finish()
        if not inspector.complete:
            raise self._refusal(NO_MORE_THAN_A_HEADER)
        try:
            inspector.safety_check()
        except SafetyCheckFailed as failed:
            raise self._refusal(_explain(failed)) from failed
        except PARSER_ERRORS as error:
            raise self._refusal(DAMAGED) from error

    @property
    def _finding(self) -> InspectionResult:
        unit = SECTOR if self._declared.can_be_a_disk else 1
        whole = -(-self._virtual_size // unit) * unit
        return InspectionResult(format=self._declared.content, virtual_size=whole)

    @property
    def _virtual_size(self) -> int:
        match self._declared.content:
            case DiskFormat.RAW:
                return self._size
            case DiskFormat.VPC:
                return vhd.virtual_size(self._head if self._has_header else self._last_sector)
            case DiskFormat.PLOOP:
                return parallels.virtual_size(self._head)
        assert self._inspector is not None  # these were not recognised without one
        try:
            return self._inspector.virtual_size
        except PARSER_ERRORS as error:
            raise self._refusal(DAMAGED) from error

    def _objections_to_virtual_size(self) -> Iterator[Objection]:
        size = self._virtual_size
        if size == 0:
            yield NO_DISK
        largest = LARGEST if self._declared.can_be_a_disk else LARGEST_TO_BOOT
        if size > largest:
            what = "disk" if self._declared.can_be_a_disk else "kernel or ramdisk"
            reason = f"it says that it holds a {what} of {format_size(size)}"
            yield Objection(reason, f"{format_size(largest)} is the most that is taken")

    def _objections_to_end(self) -> Iterator[Objection]:
        if self._has_header and self._size < SECTOR:
            yield NO_MORE_THAN_A_HEADER
        if self._declared.content is DiskFormat.VPC:
            yield from self._objections_to_end_of_vhd()
        if self._declared.content is DiskFormat.RAW:
            yield from self._objections_to_end_of_raw()

    def _objections_to_end_of_vhd(self) -> Iterator[Objection]:
        if not self._has_header and not vhd.is_footer(self._last_sector):
            yield objection_to(self._declared, frozenset())
        yield from vhd.objections_to_end(self._last_sector, self._size, grows=self._has_header)

    def _objections_to_end_of_raw(self) -> Iterator[Objection]:
        if self._size % SECTOR and self._declared.can_be_a_disk:
            yield BROKEN_SECTOR
        if vhd.is_footer(self._last_sector):
            yield objection_to(self._declared, frozenset({ImageFormat.VHD.value}))
        if self._inspector and self._inspector.virtual_size > self._size:  # an ISO's own count
            yield CUT_OFF

    def _refuse_if(self, objections: Iterable[Objection]) -> None:
        for objection in objections:
            raise self._refusal(objection)

    def _refusal(self, objection: Objection) -> ImageRefused:
        return ImageRefused(self._name, objection.reason, objection.advised)


def _acceptable(declared: ImageFormat) -> tuple[frozenset[str], ...]:
    """What may be recognised in such an image."""
    nothing: frozenset[str] = frozenset()
    if declared is ImageFormat.VHD:
        return frozenset({declared.value}), nothing  # one of fixed size has its footer alone
    if declared.content is DiskFormat.RAW and declared is not ImageFormat.ISO:
        return (nothing,)
    return (frozenset({declared.value}),)


def _immaterial(declared: ImageFormat) -> frozenset[str]:
    """What may be recognised without a meaning: kernels unpack themselves, and their ramdisks."""
    return frozenset() if declared.can_be_a_disk else PACKED_FOR_LINUX


def _explain(failed: SafetyCheckFailed) -> Objection:
    check = next(iter(failed.failures))
    return _FAILED_CHECKS.get(check) or Objection(f"it fails the safety check {check!r}")
