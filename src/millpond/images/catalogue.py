"""The image source of a machine alone: files by their content, and one record per image.

    blobs/<sha512>         what images hold: each content once, read-only, never written again
    indexes/<sha512>       the SHA-256 of each 256 KiB of such a content, one after the other
    records/<uuid>.json    what images are called and declared to be
    incoming/<uuid>        what is being received
    locks/

A record is written after its blob and its index and removed before them, so what has a record is
complete.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from millpond.errors import (
    Busy,
    DamagedRecord,
    FileNotReadable,
    ImageInUse,
    ImageNotFound,
    StateNotWritable,
    UnreadableRecord,
)
from millpond.images.index import Index, read_index
from millpond.images.source import Parts, Stream
from millpond.model.boot_images import booted_with
from millpond.model.image import Image
from millpond.model.names import UUID, ImageId, did_you_mean, pick
from millpond.model.transfer import Patience
from millpond.records import codec
from millpond.system import files
from millpond.system.files import CHUNK
from millpond.system.locks import Locks

if TYPE_CHECKING:
    from millpond.system.http import Resource

LOG = logging.getLogger(__name__)

_USUAL = Patience(connect_seconds=10, read_seconds=60, retries=5)

SCHEMA = 1

LOCK = "catalogue"

# What is ours by its name. Anything else in these directories is left alone.
_PART = re.compile(rf"{UUID}(\.volume)?")  # and what it is made from
_RECORD = re.compile(rf"{UUID}\.json")
_HALF = re.compile(rf"\.{UUID}\.json\.\d+\.[0-9a-f]+")  # as files.write_atomically names it
_DIGEST = re.compile(r"[0-9a-f]{128}")
_INDEX = re.compile(r"[0-9a-f]{128}|\.[0-9a-f]{128}\.\d+\.[0-9a-f]+")  # and one that is unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    image: Image
    url: str = ""
    """Where the bytes of an image are that was not received, with all that it says."""
    schema: int = SCHEMA


class Catalogue:
    vouches_for_index = True
    """Each was made here, or given by whoever added the image."""

    def __init__(self, directory: Path, patience: Patience = _USUAL) -> None:
        """``patience``: with the servers of images that were not received."""
        self._blobs = directory / "blobs"
        self._indexes = directory / "indexes"
        self._records = directory / "records"
        self._incoming = directory / "incoming"
        self._locks = Locks(directory / "locks")
        self._patience = patience
        self._left_out: set[Path] = set()

    def all(self) -> list[Image]:
        """For showing and finding: those whose records can be read. Whoever decides by what is
        *not* there asks for every()."""
        images, unreadable = self.readable()
        for each in unreadable:
            if each.path not in self._left_out:
                LOG.warning("an image is left out: %s", each)
                self._left_out.add(each.path)
        return images

    def every(self) -> list[Image]:
        images, unreadable = self.readable()
        if unreadable:
            raise unreadable[0]
        return images

    def readable(self) -> tuple[list[Image], list[UnreadableRecord]]:
        """And what is wrong with the others."""
        images: list[Image] = []
        unreadable: list[UnreadableRecord] = []
        for path in self._record_paths():
            try:
                if image := self._read(path):
                    images.append(image)
            except UnreadableRecord as error:
                unreadable.append(error)
        return sorted(images, key=lambda image: (image.name, image.id)), unreadable

    def find(self, name_or_id: str) -> Image | None:
        return next((image for image in self.all() if name_or_id in (image.id, image.name)), None)

    def get(self, name_or_id: str, *, shortened: bool = False) -> Image:
        """Also if another's record cannot be read; not found, it may be that one."""
        images, unreadable = self.readable()
        if found := pick("image", images, name_or_id, shortened=shortened):
            return found
        if unreadable:
            raise unreadable[0]
        raise ImageNotFound(name_or_id, did_you_mean((each.name for each in images), name_or_id))

    def remove(self, image: Image, find_servers: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Forget an image, and its content if no other image has the same, unless a server needs
        it. One that is being created is recorded before its image is read, so this is asked last:
        either it is found here, or the image is missing there."""
        with self._writing(), self._locks.hold(LOCK):
            if not self._record(image.id).exists():
                raise ImageNotFound(image.id)
            if needing := booted_with(self.every(), image):
                raise ImageInUse(image.name, images=needing)
            if servers := find_servers():
                raise ImageInUse(image.name, servers)
            others = [each for each in self.every() if each.id != image.id]
            files.remove(self._record(image.id))
            files.sync_directory(self._records)
            if image.digest not in {each.digest for each in others}:
                files.remove(self._blob(image))
                files.remove(self._index(image))
        LOG.info("removed image %s (%s)", image.name, image.id)

    def leftovers(self) -> list[Path]:
        """What interrupted operations left: no image needs it, and nobody works on it."""
        if not self._records.parent.exists():
            return []
        with self._writing(), self._locks.hold(LOCK):
            dead = [part for part in self._parts() if not self._locks.is_held(lock_of(part))]
            return sorted([*dead, *self._unnamed()])

    def cleanup(self) -> list[Path]:
        """Remove the leftovers that nobody has open, and say which (B31)."""
        with self._writing(), self._locks.hold(LOCK):
            swept = [part for part in self._parts() if self._cleanup_part(part)]
            for path in self._unnamed():
                if not files.is_open(path):
                    files.remove(path)
                    swept.append(path)
        for path in swept:
            LOG.info("removed %s, left by an interrupted operation", path)
        return sorted(swept)

    # As an ImageSource

    def describe(self, id: ImageId) -> Image:
        if files.is_file_name(f"{id}.json") and (found := self._read(self._record(id))):
            return found
        raise ImageNotFound(id)

    def open(self, image: Image) -> Stream:
        if image.location:
            resource = self._resource(image)
            return Stream(
                chunks=resource.chunks,
                retries=self._patience.retries,
                digest=image.expected,
                length=lambda: resource.size,
                has_end=lambda: resource.has_end,
            )

        def chunks(offset: int) -> Iterator[bytes]:
            with open(self._content(image), "rb", buffering=0) as file:
                file.seek(offset)
                while chunk := file.read(CHUNK):
                    yield chunk

        return Stream(chunks=chunks, digest=image.expected)

    def locations(self, image: Image) -> tuple[str, ...]:
        return (self._content(image).as_uri(),) if not image.location else ()

    def find_parts(self, image: Image) -> Parts | None:
        if not image.location:
            return None
        read, url = self._resource(image).part, self._url(image.id)
        return Parts(read=read, location=image.location, url=url)

    def local_file(self, image: Image) -> Path | None:
        return None if image.location else self._content(image)

    def _content(self, image: Image) -> Path:
        blob = self._blob(image)
        if not has_size(blob, image.size):
            raise DamagedRecord(self._record(image.id), f"its content, {blob}, is gone")
        return blob

    def find_index(self, image: Image) -> Index | None:
        """None of images from before there were any, and where it is damaged."""
        return read_index(self._index(image), image.size, image.index_root)

    # Files

    def _resource(self, image: Image) -> "Resource":
        """An HTTP client costs a tenth of a second to load, which a list of servers need not
        pay."""
        made: Resource = resolve_name("millpond.system.http:Resource")(
            self._url(image.id), self._patience
        )
        return made

    def _url(self, id: ImageId) -> str:
        found = self._read_record(self._record(id))
        return found.url if found else ""

    def _write_record(self, image: Image, url: str = "") -> None:
        """``url``, if it has none yet."""
        record = ImageRecord(image=image, url=url or self._url(image.id))
        with files.explaining_lack_of_space(self._records):
            files.write_atomically(self._record(image.id), codec.encode(record), 0o600)

    def _index(self, image: Image) -> Path:
        return self._indexes / image.digest

    def _blob(self, image: Image) -> Path:
        return self._blobs / image.digest

    def _record(self, id: ImageId) -> Path:
        return self._records / f"{id}.json"

    def _record_paths(self) -> list[Path]:
        return [path for path in files.entries(self._records) if _RECORD.fullmatch(path.name)]

    def _parts(self) -> list[Path]:
        return [path for path in files.entries(self._incoming) if _PART.fullmatch(path.name)]

    def _unnamed(self) -> list[Path]:
        """Blobs and indexes without a record, and what was not finished. The lock is held."""
        needed = {image.digest for image in self.every()}
        blobs = [path for path in files.entries(self._blobs) if _DIGEST.fullmatch(path.name)]
        records = [path for path in files.entries(self._records) if _HALF.fullmatch(path.name)]
        indexes = [path for path in files.entries(self._indexes) if _INDEX.fullmatch(path.name)]
        contents = [path for path in (*blobs, *indexes) if path.name not in needed]
        return [*records, *contents]

    def _cleanup_part(self, part: Path) -> bool:
        try:
            with self._locks.hold_now(lock_of(part), part.name):
                if files.is_open(part):
                    return False
                files.remove(part)
                return True
        except Busy:
            return False  # it is being received

    def _read(self, path: Path) -> Image | None:
        found = self._read_record(path)
        return found.image if found else None

    def _read_record(self, path: Path) -> ImageRecord | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            raise FileNotReadable(path, error.strerror or str(error)) from error
        found = codec.decode(content, ImageRecord, path, SCHEMA)
        image = found.image
        if path.stem != image.id or not _DIGEST.fullmatch(image.digest):
            raise DamagedRecord(path, "it is not the record of the image that it is named for")
        return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        path = self._records.parent
        try:
            with files.explaining_lack_of_space(path):
                yield
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error


def lock_of(part: Path) -> str:
    return f"incoming:{part.stem}"


def has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False
