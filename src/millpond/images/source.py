"""Where images come from, as everything behind it sees it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from millpond.errors import BadOption
from millpond.model.callbacks import Progress
from millpond.model.formats import ImageFormat
from millpond.model.image import KERNEL_ID, RAMDISK_ID, Image
from millpond.model.names import ImageId
from millpond.model.server import Content
from millpond.model.transfer import Digest


class Proof(Protocol):
    """Of something about an image's bytes, while they pass."""

    def eat(self, chunk: bytes) -> None:
        """Each of them, from the first one on."""

    def finish(self) -> None:
        """All have passed. Raises ImageRefused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An image's bytes, as they are stored. Who takes them inspects them."""

    chunks: Callable[[int], Iterable[bytes]]
    """From an offset on. Raises FetchInterrupted where another try may help, and CannotResume
    where it must begin with the first byte."""
    retries: int = 0
    digest: Digest | None = None
    """What the whole must have."""
    length: Callable[[], int | None] = lambda: None
    """Of the whole. Asked when bytes arrive; None if the source does not say it."""
    has_end: Callable[[], bool] = lambda: True
    """Whether the source says in any way where they end. Asked when bytes arrive."""
    begin_proof: Callable[[], Proof] | None = None
    """Of its signature, where one is asked for; called whenever the first byte comes."""


class ImageSource(Protocol):
    def describe(self, id: ImageId) -> Image:
        """What the source says of an image. Raises ImageNotFound."""

    def open(self, image: Image) -> Stream:
        """The image's bytes, with the digest that the source declares."""

    def locations(self, image: Image) -> tuple[str, ...]:
        """Where the source keeps them, as URLs (cinder://…, rbd://…), as far as it says so."""

    def local_file(self, image: Image) -> Path | None:
        """A file on this machine that has the image's inspected bytes and will never be written
        to again, so that a template may link it; None where there is none."""


class SignatureCheck(Protocol):
    def proof_of(self, image: Image, auth: Any) -> Callable[[], Proof]:
        """Begins a proof, as often as the bytes begin. ``auth`` says who asks, as for Glance.
        Raises ImageRefused where the bytes need not be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An image that was made and inspected here, on its way to its source."""

    id: ImageId
    """What it will be known by. Its file bears the same, so that a process that dies leaves
    word of what it had begun there."""
    path: Path
    name: str
    format: ImageFormat
    size: int
    virtual_size: int
    digest: str
    """SHA-512, in hexadecimal."""
    properties: Mapping[str, str]


@runtime_checkable
class TakesUploads(Protocol):
    """A source that images which are made here go to."""

    def upload(self, upload: Upload, progress: Progress) -> Image:
        """A new image. What fails or is interrupted leaves none."""

    def unfinished(self, id: ImageId) -> str | None:
        """The name of an image whose upload was begun and not finished."""

    def abandon(self, id: ImageId) -> None:
        """Remove an image whose upload was not finished; one that is gone is no error."""


class Library(ImageSource, Protocol):
    """An image source that people look into."""

    def all(self) -> list[Image]:
        """Every image that a server can be made from."""

    def get(self, name_or_id: str, *, shortened: bool = False) -> Image:
        """By name or id; ``shortened``, also by the first eight characters of an id, or more. Two
        may have a name where the source allows it."""


def booted_with(images: Iterable[Image], image: Image) -> tuple[str, ...]:
    """Names of the images whose kernel or ramdisk this one is."""
    return tuple(each.name for each in images if each.boots_with(image.id))


Find = Callable[[str], Image]
"""The image that a property names. Raises ImageNotFound."""


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
