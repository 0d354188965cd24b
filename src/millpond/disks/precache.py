"""Templates ahead of need: what a server of an image would be made from on this host."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from millpond.disks.backend import ImageBackend, UploadsTemplates
from millpond.disks.selection import Selection
from millpond.model.boot_images import BootImages
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.template import Template
from millpond.templates.handler import BaseTemplateImagehandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    image: Image
    format: DiskFormat
    backend: Backend | None = None
    """Of the disks that will be made from it; None: it is wanted in the base pool alone."""


def plan(image: Image, boot: BootImages | None, selection: Selection) -> Iterator[Wanted]:
    """Its own template, and those of its kernel and its ramdisk."""
    if not image.format.can_be_a_disk:
        yield Wanted(image=image, format=DiskFormat.RAW)  # a kernel or a ramdisk itself (B12)
        return
    choice = selection.choose(image.format)
    yield Wanted(image=image, format=choice.template_format, backend=choice.backend)
    for each in boot.files.values() if boot else ():
        yield Wanted(image=each, format=DiskFormat.RAW)


def fetch(
    templates: BaseTemplateImagehandler,
    storage: Callable[[Backend], ImageBackend],
    wanted: Sequence[Wanted],
    concurrency: int,
    progress: Progress = noop,
) -> list[Template]:
    """All of them, some at a time, and into the pool of their disks where those are made from
    what is there. One that fails does not keep the others from being made."""

    def fetch_one(each: Wanted) -> Template:
        template = templates.fetch_image(each.image, each.format, progress)
        backend = storage(each.backend) if each.backend else None
        if isinstance(backend, UploadsTemplates):
            with templates.hold(template):
                backend.upload_template(template)
        return template

    with ThreadPoolExecutor(concurrency) as threads:
        begun = [threads.submit(fetch_one, each) for each in wanted]
    return [each.result() for each in begun]
