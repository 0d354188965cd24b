"""Where images come from, as everything behind it sees it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from millpond.model.image import Image
from millpond.model.names import ImageId


class ImageSource(Protocol):
    def describe(self, id: ImageId) -> Image:
        """What the source says of an image. Raises ImageNotFound."""

    def chunks(self, image: Image) -> Iterator[bytes]:
        """The image's bytes, as they are stored. Who takes them inspects them."""

    def local_file(self, image: Image) -> Path | None:
        """A file on this machine that has the image's inspected bytes and will never be written
        to again, so that a template may link it; None where there is none."""
