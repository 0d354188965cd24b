"""What would become of an image on this host, and why: the same decisions, without the deeds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millpond.disks.selection import Choice, Selection
from millpond.model.boot_images import BootImages
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, template_name
from millpond.model.server import Content
from millpond.templates.handler import LinkPreview

_SHARES = (Backend.QCOW2, Backend.RBD)
"""Disks of these are overlays or clones."""

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
    disk_written: int = 0
    """Bytes that are written for each disk made from it, at the most; 0: it is an overlay or a
    clone."""
    location: str = ""
    """Where it is linked instead of being copied."""
    not_linked: str = ""
    """Why a handler that links copies it."""
    streamed: str = ""
    """From where its bytes come while its servers run already."""
    not_streamed: str = ""
    """Why a handler that streams downloads it."""
    boot: tuple[BootFile, ...] = ()
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStatus:
    """What is there, and what the handler of templates would do."""

    is_prepared: IsPrepared
    preview_link: Callable[[Image, DiskFormat], LinkPreview]
    is_local: bool
    """The image's own bytes are on this machine, and a template can link them."""


def explain(
    image: Image, boot: BootImages | None, selection: Selection, status: TemplateStatus
) -> Explanation:
    choice = selection.choose(image.format)
    is_prepared = status.is_prepared
    prepared = is_prepared(image.id, choice.template_format, choice.backend)
    preview = status.preview_link(image, choice.template_format)
    free = prepared or _is_free(choice, preview, status.is_local)
    read, written = (0, 0) if free else _cost(image, choice)
    return Explanation(
        image=image.name,
        declared=image.format,
        proven=image.format.content,
        backend=choice.backend,
        reason=choice.reason,
        template_format=_template_format(choice),
        native=choice.native,
        template=template_name(image.id, choice.template_format),
        template_exists=prepared,
        read=read,
        written=written,
        disk_written=0 if choice.backend in _SHARES else image.virtual_size,
        location=preview.location,
        not_linked=preview.not_linked,
        streamed=preview.streamed,
        not_streamed=preview.not_streamed,
        boot=tuple(_boot_files(boot, is_prepared)) if boot else (),
    )


def _boot_files(boot: BootImages, is_prepared: IsPrepared) -> Iterator[BootFile]:
    for content, image in boot.files.items():
        yield BootFile(
            content=content,
            image=image.name,
            size=image.size,
            template=template_name(image.id, DiskFormat.RAW),
            template_exists=is_prepared(image.id, DiskFormat.RAW, Backend.RAW),
        )


def _is_free(choice: Choice, preview: LinkPreview, is_local: bool) -> bool:
    """No byte moves: a native image is linked, unless it has to reach a cluster. Whether one that
    lies in Ceph is in that cluster is seen when it is linked."""
    if preview.location:
        return choice.native
    return choice.native and is_local and not _goes_to_ceph(choice)


def _cost(image: Image, choice: Choice) -> tuple[int, int]:
    return image.size, _template_format(choice).most_bytes(image.virtual_size or image.size)


def _goes_to_ceph(choice: Choice) -> bool:
    return choice.backend is Backend.RBD


def _template_format(choice: Choice) -> DiskFormat:
    return DiskFormat.RAW if _goes_to_ceph(choice) else choice.template_format
