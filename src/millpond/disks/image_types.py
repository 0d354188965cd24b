"""Which image formats a host takes: what is reported, and what is refused (B35)."""

from collections.abc import Mapping

from millpond.disks.selection import SOURCES, Selection
from millpond.errors import Unsupported
from millpond.model.formats import Backend, ImageFormat

_WITH_A_DISK = frozenset(set(ImageFormat) - set(SOURCES))
"""Kernels and ramdisks, which are booted with a disk."""

SERVED: Mapping[str, frozenset[Backend]] = {
    "qemu": frozenset(Backend),
    "kvm": frozenset(Backend),
    "parallels": frozenset({Backend.PLOOP}),
}
"""The backends whose disks the guests of a hypervisor can have. Of others nothing is known to
work."""
NEED_FILES = frozenset({Backend.PLOOP})
"""The backends that cannot make a disk from a template through libvirt alone."""
_BOOTS_KERNELS = ("qemu", "kvm")


def supported_formats(
    selection: Selection,
    excluded: frozenset[ImageFormat],
    *,
    converted: bool,
    hypervisor: str = "qemu",
    local: bool = True,
) -> frozenset[ImageFormat]:
    """Without ``converted``, only formats whose bytes serve disks as they are. ``local``: the
    files of the host can be opened here."""
    served = SERVED.get(hypervisor, frozenset()) - (frozenset() if local else NEED_FILES)
    choices = {each: selection.choose(each) for each in SOURCES}
    disks = {
        each
        for each, choice in choices.items()
        if choice.backend in served and (converted or choice.native)
    }
    kernels = _WITH_A_DISK if hypervisor in _BOOTS_KERNELS else frozenset()
    return frozenset(disks | kernels) - excluded


def refuse_unless_taken(format: str, formats: frozenset[ImageFormat]) -> None:
    """Whoever comes without having asked Placement is told here."""
    if format not in formats:
        reason = f"this host takes {', '.join(sorted(formats))}"
        raise Unsupported(f"an image of the format {format}", reason, "choose another host")
