"""Where images come from, as everything behind it sees it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from millpond.images.index import Index
from millpond.model.callbacks import Progress
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.stream import ReadPart
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An image whose source gives parts of it."""

    read: ReadPart
    location: str
    """For people: without what is secret of it."""
    url: str = ""
    """Where whoever is told can read them, too; it may hold a password. Empty where only the
    source itself can."""


class ImageSource(Protocol):
    vouches_for_index: bool
    """Whether what it says of an image's index is the word of this host's operator."""

    def describe(self, id: ImageId) -> Image:
        """What the source says of an image. Raises ImageNotFound."""

    def open(self, image: Image) -> Stream:
        """The image's bytes, with the digest that the source declares."""

    def locations(self, image: Image) -> tuple[str, ...]:
        """Where the source keeps them, as URLs (cinder://…, rbd://…), as far as it says so."""

    def find_index(self, image: Image) -> Index | None:
        """What is published of it; None if there is none, or it is not the one of its root."""

    def find_parts(self, image: Image) -> Parts | None:
        """None where there is no way to ask for a part. Whether its server gives any is seen when
        it is asked."""

    def local_file(self, image: Image) -> Path | None:
        """A file on this machine that has the image's inspected bytes and will never be written
        to again, so that a template may link it; None where there is none."""


class SignatureCheck(Protocol):
    def concerns(self, image: Image) -> bool:
        """Whether this one is taken only with a signature."""

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
    hidden: bool = False
    """No list of images shows it."""


@runtime_checkable
class TakesUploads(Protocol):
    """A source that images which are made here go to."""

    def upload(self, upload: Upload, progress: Progress) -> Image:
        """A new image. What fails or is interrupted leaves none."""

    def find_index(self, image: Image) -> Index | None:
        """What was published of it."""

    def state_index(self, image: Image, root: str, listed: ImageId) -> Image:
        """Publish the root of an image's index, and that ``listed`` holds its list."""

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
