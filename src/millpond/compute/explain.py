"""What would become of an image on this host, and why: the same decisions, without the deeds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millpond.backends.selection import Choice, Selection
from millpond.images.boot_images import BootImages
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, template_name
from millpond.model.server import Content

IsPrepared = Callable[[ImageId, DiskFormat, Backend], bool]
"""Whether what disks are made from, once for all of them, is there already."""


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
    """What disks are made from; in a Ceph cluster that is always raw."""
    native: bool
    template: str
    template_exists: bool
    read: int
    """Bytes that are read to make the template, at the most."""
    written: int
    """Bytes that are written for it, at the most; holes are not."""
    boot: tuple[BootFile, ...] = ()


def explain(
    image: Image, boot: BootImages | None, selection: Selection, is_prepared: IsPrepared
) -> Explanation:
    choice = selection.choose(image.format)
    prepared = is_prepared(image.id, choice.template_format, choice.backend)
    read, written = (0, 0) if prepared else _cost(image, choice)
    return Explanation(
        image=image.name,
        declared=image.format,
        proven=image.format.content,
        backend=choice.backend,
        reason=choice.reason,
        template_format=_made(choice),
        native=choice.native,
        template=template_name(image.id, choice.template_format),
        template_exists=prepared,
        read=read,
        written=written,
        boot=tuple(_boot_files(boot, is_prepared)) if boot else (),
    )


def _boot_files(boot: BootImages, is_prepared: IsPrepared) -> Iterator[BootFile]:
    for content, image in ((Content.KERNEL, boot.kernel), (Content.RAMDISK, boot.ramdisk)):
        if image:
            yield BootFile(
                content=content,
                image=image.name,
                size=image.size,
                template=template_name(image.id, DiskFormat.RAW),
                template_exists=is_prepared(image.id, DiskFormat.RAW, Backend.RAW),
            )


def _cost(image: Image, choice: Choice) -> tuple[int, int]:
    """A native image of this machine's catalogue is linked: no byte of it moves, unless it has to
    reach a cluster."""
    if choice.native and not _goes_to_ceph(choice):
        return 0, 0
    return image.size, _made(choice).most_bytes(image.virtual_size)


def _goes_to_ceph(choice: Choice) -> bool:
    return choice.backend is Backend.RBD


def _made(choice: Choice) -> DiskFormat:
    return DiskFormat.RAW if _goes_to_ceph(choice) else choice.template_format
