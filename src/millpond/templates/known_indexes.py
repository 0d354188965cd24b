"""Indexes of images that were received whole here, and had the digest that was stated of them:
next time, they can be believed part by part."""

import re
from contextlib import suppress
from pathlib import Path

from millpond.errors import DamagedRecord
from millpond.images.index import Index, index_length
from millpond.model.image import Image
from millpond.records import codec
from millpond.templates.sidecar import write_file

_STRONG = ("sha512", "sha384", "sha256")
"""Of md5, somebody can make two images with the same one."""


class KnownIndexes:
    def __init__(self, sidecar: Path) -> None:
        self._directory = sidecar / "indexes"

    def note(self, image: Image, index: Index) -> None:
        if path := self._path(image):
            write_file(path, codec.seal(index.digests))

    def find(self, image: Image) -> Index | None:
        """One that is damaged is as if there were none."""
        path = self._path(image)
        with suppress(FileNotFoundError, DamagedRecord):
            digests = codec.unseal(path.read_bytes(), path) if path else b""
            if digests and len(digests) == index_length(image.size):
                return Index(size=image.size, digests=digests)
        return None

    def _path(self, image: Image) -> Path | None:
        if image.digest_algorithm not in _STRONG or not re.fullmatch("[0-9a-f]+", image.digest):
            return None
        return self._directory / f"{image.digest_algorithm}-{image.digest}"
