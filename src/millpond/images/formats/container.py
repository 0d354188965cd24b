"""What the modules of the container formats share: objections, and tables read with care.

oslo.utils' inspectors recognise these formats and check the worst of each; one module a format
adds what they leave out.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from millpond.model.sizes import GiB, format_size

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
    "stop what uses it; 'qemu-img check -r all' repairs what a crash left",
)

LARGEST_TABLES = 1 * GiB
"""Of what the second look reads. The tables of 8 TiB in a qcow2 with its usual clusters are that
large; those of a hostile image may be all of it, and cost minutes."""

TOO_LARGE_TABLES = Objection(
    f"its tables take more than {format_size(LARGEST_TABLES)}",
    "write it again with larger clusters, or as raw, with 'qemu-img convert'",
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


def pieces(
    read: Read, offset: int, count: int, width: Literal["I", "Q"], order: str = "little"
) -> Iterator["array[int]"]:
    """The numbers of a table, of 32 or 64 bits, which may be longer than what one wants in memory.
    Raises ValueError where the file ends within one."""
    end = offset + count * array(width).itemsize
    for start in range(offset, end, _PIECE):
        numbers = array(width, read(start, min(_PIECE, end - start)))
        if order != sys.byteorder:
            numbers.byteswap()
        yield numbers


def largest(read: Read, offset: int, count: int) -> int:
    """Of a table of 32 bits; 0 of an empty one."""
    return max((max(each, default=0) for each in pieces(read, offset, count, "I")), default=0)
