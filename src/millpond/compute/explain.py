"""What would become of an image on this host, and why: the same decisions, without the deeds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millpond.backends.selection import Choice, Selection
from millpond.images.boot_images import BootImages
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, template_name
from millpond.model.server import Content
from millpond.model.template import Template

FindTemplate = Callable[[ImageId, DiskFormat], Template | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFile:
    """What a server gets a copy of, to be started with."""

    content: Content
    image: str
    size: int
    template: str
    template_exists: bool


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
    boot: tuple[BootFile, ...] = ()


def explain(
    image: Image, boot: BootImages | None, selection: Selection, find_template: FindTemplate
) -> Explanation:
    choice = selection.choose(image.format)
    found = find_template(image.id, choice.template_format)
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
        boot=tuple(_boot_files(boot, find_template)) if boot else (),
    )


def _boot_files(boot: BootImages, find_template: FindTemplate) -> Iterator[BootFile]:
    for content, image in ((Content.KERNEL, boot.kernel), (Content.RAMDISK, boot.ramdisk)):
        if image:
            yield BootFile(
                content=content,
                image=image.name,
                size=image.size,
                template=template_name(image.id, DiskFormat.RAW),
                template_exists=find_template(image.id, DiskFormat.RAW) is not None,
            )


def _cost(image: Image, choice: Choice, found: Template | None) -> tuple[int, int]:
    """A native image of this machine's catalogue is linked: no byte of it moves."""
    if found or choice.native:
        return 0, 0
    return image.size, image.virtual_size
