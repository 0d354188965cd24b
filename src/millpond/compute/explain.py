"""What would become of an image on this host, and why: the same decisions, without the deeds."""

from dataclasses import dataclass

from millpond.backends.selection import Choice, Selection
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.template import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    image: str
    declared: str
    proven: DiskFormat
    """Inspection proved it when the image was added."""
    backend: str
    reason: str
    template_format: DiskFormat
    native: bool
    template: str
    template_exists: bool
    read: int
    """Bytes that are read to make the template, at the most."""
    written: int
    """Bytes that are written for it, at the most; holes are not."""


def explain(image: Image, selection: Selection, found: Template | None) -> Explanation:
    choice = selection.choose(image.format)
    read, written = _cost(image, choice, found)
    return Explanation(
        image=image.name,
        declared=image.format,
        proven=image.format.content,
        backend=choice.backend,
        reason=choice.reason,
        template_format=choice.template_format,
        native=choice.native,
        template=template_name(image.id, choice.template_format),
        template_exists=found is not None,
        read=read,
        written=written,
    )


def _cost(image: Image, choice: Choice, found: Template | None) -> tuple[int, int]:
    """A native image of this machine's catalogue is linked: no byte of it moves."""
    if found or choice.native:
        return 0, 0
    return image.size, choice.template_format.most_bytes(image.virtual_size)
