"""Which image formats this host takes: what is reported, and what is refused (decision 6)."""

from millpond.backends.selection import SOURCES, Selection
from millpond.errors import Unsupported
from millpond.model.formats import ImageFormat

_WITH_A_DISK = frozenset(set(ImageFormat) - set(SOURCES))
"""Kernels and ramdisks, which are booted beside a disk."""


def taken(
    selection: Selection, excluded: frozenset[ImageFormat], *, converted: bool
) -> frozenset[ImageFormat]:
    """Without ``converted``, only formats whose bytes serve disks as they are."""
    disks = {each for each in SOURCES if converted or selection.choose(each).native}
    return frozenset(disks | _WITH_A_DISK) - excluded


def refuse_unless_taken(format: str, formats: frozenset[ImageFormat]) -> None:
    """Whoever comes without having asked Placement is told here."""
    if format not in formats:
        reason = f"this host takes {', '.join(sorted(formats))}"
        raise Unsupported(f"an image of the format {format}", reason, "choose another host")
