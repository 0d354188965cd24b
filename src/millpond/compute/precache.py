"""Templates ahead of need: what a server of an image would be made from on this host."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from millpond.backends.selection import Selection
from millpond.images.boot_images import BootImages
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.template import Template
from millpond.system.files import Progress, silent
from millpond.templates.handler import BaseTemplateImagehandler

Wanted = tuple[Image, DiskFormat]


def wanted(image: Image, boot: BootImages | None, selection: Selection) -> Iterator[Wanted]:
    """Its own template, and those of its kernel and its ramdisk."""
    if not image.format.can_be_a_disk:
        yield image, DiskFormat.RAW  # a kernel or a ramdisk itself (B12)
        return
    yield image, selection.choose(image.format).template_format
    if boot:
        yield from ((each, DiskFormat.RAW) for each in (boot.kernel, boot.ramdisk) if each)


def fetch(
    templates: BaseTemplateImagehandler,
    wanted: Sequence[Wanted],
    concurrency: int,
    progress: Progress = silent,
) -> list[Template]:
    """All of them, some at a time. One that fails does not keep the others from being made."""
    with ThreadPoolExecutor(concurrency) as threads:
        begun = [threads.submit(templates.fetch_image, *each, progress) for each in wanted]
    return [each.result() for each in begun]
