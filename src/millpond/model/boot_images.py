"""Images that belong to others: kernels, ramdisks and further disks, named by properties."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millpond.errors import BadOption
from millpond.model.formats import ImageFormat
from millpond.model.image import KERNEL_ID, RAMDISK_ID, Image, disks_of
from millpond.model.server import Content


def booted_with(images: Iterable[Image], image: Image) -> tuple[str, ...]:
    """Names of the images whose kernel or ramdisk, or other disk, this one is."""
    return tuple(each.name for each in images if each.needs(image.id))


Find = Callable[[str], Image]
"""The image that a property names. Raises ImageNotFound."""


def find_disk_images(properties: Mapping[str, str], find: Find) -> dict[str, Image]:
    """What the other disks of a server are made from, by their roles."""
    return {role: find(id) for role, id in disks_of(properties).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BootImages:
    kernel: Image
    ramdisk: Image | None

    @property
    def files(self) -> Mapping[Content, Image]:
        """What a server gets copies of, to be started with."""
        named = {Content.KERNEL: self.kernel, Content.RAMDISK: self.ramdisk}
        return {content: image for content, image in named.items() if image}

    @property
    def properties(self) -> dict[str, str]:
        named = {KERNEL_ID: self.kernel, RAMDISK_ID: self.ramdisk}
        return {key: image.id for key, image in named.items() if image}


def find_boot_images(
    format: ImageFormat, properties: Mapping[str, str], find: Find
) -> BootImages | None:
    """None for one that boots by itself. Any disk may have a kernel, not only an ami: the snapshot
    of an ami's server is a qcow2, and boots with the same. An empty name is none: image services
    keep such."""
    named = {key: name for key in (KERNEL_ID, RAMDISK_ID) if (name := properties.get(key))}
    if not named:
        return None
    if KERNEL_ID not in named:
        raise _bad(RAMDISK_ID, "a ramdisk needs a kernel", f"name the kernel by {KERNEL_ID}")
    if not format.can_be_a_disk:
        raise _bad(KERNEL_ID, f"an {format} image is no disk", "give it to the disk's image")
    return BootImages(
        kernel=_check(KERNEL_ID, ImageFormat.AKI, find(named[KERNEL_ID])),
        ramdisk=(
            _check(RAMDISK_ID, ImageFormat.ARI, find(named[RAMDISK_ID]))
            if RAMDISK_ID in named
            else None
        ),
    )


def _check(key: str, needed: ImageFormat, image: Image) -> Image:
    if image.format is not needed:
        reason = f"image {image.name!r} is declared as {image.format}, not as {needed}"
        raise _bad(key, reason, f"add that file with --disk-format {needed}")
    return image


def _bad(key: str, reason: str, advised: str) -> BadOption:
    return BadOption(f"image property {key}", reason, advised)
