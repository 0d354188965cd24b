"""What the modules of the container formats share: objections, and tables read with care.

oslo.utils' inspectors recognise these formats and check the worst of each; one module a format
adds what they leave out.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

SECTOR = 512
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an image is refused, and what to do about it, both in words."""

    reason: str
    advised: str = ""


AGAIN = "fetch it again, and compare its length and checksum with what its publisher says"
DAMAGED = Objection("its header is damaged", AGAIN)
CUT_OFF = Objection("it is cut off: its own tables name data beyond its end", AGAIN)
NEEDS_A_PARENT = Objection(
    "it holds only the differences to another image",
    "merge it into its parent with the program that made it, or with 'qemu-img convert'",
)
NOT_CLOSED = Objection(
    "it was not closed properly, or is in use",
    "stop what uses it; 'qemu-img check -r all' mends what a crash left",
)

Read = Callable[[int, int], bytes]
"""The bytes of the image file from an offset, so many."""


class Container(Protocol):
    """The modules qcow2, vmdk, vdi, vhd, vhdx and parallels."""

    def objections(self, head: bytes) -> Iterator[Objection]:
        """What the first block (64 KiB, or the whole of a shorter file) gives away."""

    def flaws(self, read: Read, size: int) -> Iterator[Objection]:
        """What the complete file of this size gives away, once its head raised no objection."""


def if_cut_off(ends: Iterable[int], size: int) -> Iterator[Objection]:
    """``ends`` says how long the file must be, claim after claim; what a claim covers is read
    only after it was yielded, and after the first claim beyond the end of the file no more."""
    if any(end > size for end in ends):
        yield CUT_OFF


def entries(read: Read, offset: int, count: int, layout: str) -> Iterator[int]:
    """The numbers of a table, which may be longer than what one wants in memory."""
    entry = struct.Struct(layout)
    end = offset + count * entry.size
    for start in range(offset, end, _PIECE):
        for (number,) in entry.iter_unpack(read(start, min(_PIECE, end - start))):
            yield number
