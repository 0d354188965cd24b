"""What would become of an image on this host, and why: the same decisions, without the deeds."""

from dataclasses import dataclass

from millpond.backends.selection import Choice
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    image: str
    declared: str
    proven: DiskFormat
    """Inspection proved it when the image was added."""
    backend: str
    reason: str
    template_format: DiskFormat
    """What disks are made from; in a Ceph cluster that is always raw."""
    native: bool
    template: str
    template_exists: bool
    read: int
    """Bytes that are read to make the template, at the most."""
    written: int
    """Bytes that are written for it, at the most; holes are not."""


def explain(image: Image, choice: Choice, *, prepared: bool) -> Explanation:
    """``prepared``: what is made once for all disks of the image is there already."""
    read, written = (0, 0) if prepared else _cost(image, choice)
    return Explanation(
        image=image.name,
        declared=image.format,
        proven=image.format.content,
        backend=choice.backend,
        reason=choice.reason,
        template_format=DiskFormat.RAW if _goes_to_ceph(choice) else choice.template_format,
        native=choice.native,
        template=template_name(image.id, choice.template_format),
        template_exists=prepared,
        read=read,
        written=written,
    )


def _cost(image: Image, choice: Choice) -> tuple[int, int]:
    """A native image of this machine's catalogue is linked: no byte of it moves, unless it has to
    reach a cluster."""
    if choice.native and not _goes_to_ceph(choice):
        return 0, 0
    return image.size, image.virtual_size


def _goes_to_ceph(choice: Choice) -> bool:
    return choice.backend is Backend.RBD
