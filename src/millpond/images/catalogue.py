"""The image source of a machine alone: files by their content, and one record per image.

    blobs/<sha512>         what images hold: each content once, read-only, never written again
    records/<uuid>.json    what images are called and declared to be
    incoming/<uuid>        what is being received
    locks/

A record is written after its blob and removed before it, so what has a record is complete.
"""

import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import (
    Ambiguous,
    BadOption,
    Busy,
    DamagedRecord,
    FileNotReadable,
    ImageNotFound,
    NameTaken,
    StateNotWritable,
)
from millpond.images.receive import receive_file
from millpond.images.suffixes import stated_format, stated_name
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, checked_name
from millpond.records import codec
from millpond.system import files
from millpond.system.files import CHUNK, Progress, silent
from millpond.system.locks import Locks
from millpond.undo import undo_on_failure

LOG = logging.getLogger(__name__)

SCHEMA = 1

_LOCK = "catalogue"

# What is ours by its name. Anything else in these directories is left alone.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(_UUID)
_RECORD = re.compile(rf"{_UUID}\.json")
_HALF = re.compile(rf"\.{_UUID}\.json\.\d+\.[0-9a-f]+")  # as files.write_atomically names it
_DIGEST = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    image: Image
    schema: int = SCHEMA


class Catalogue:
    def __init__(self, directory: Path) -> None:
        self._blobs = directory / "blobs"
        self._records = directory / "records"
        self._incoming = directory / "incoming"
        self._locks = Locks(directory / "locks")

    def add(
        self,
        path: Path,
        *,
        name: str | None = None,
        format: ImageFormat | None = None,
        properties: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> Image:
        """Receive an image from a file ('-' is standard input). What its name and format are
        not told, the file's name must say."""
        name = checked_name("an image", name or stated_name(path))
        format = format or stated_format(path)
        self._refuse_taken(name)
        with self._arriving() as (id, part):
            received = receive_file(path, part, format, name, progress)
            image = Image(
                id=id,
                name=name,
                format=format,
                size=received.size,
                virtual_size=received.virtual_size,
                digest=received.digest,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                properties=dict(properties or {}),
            )
            self._publish(image, part)
        LOG.info("added image %s (%s)", image.name, image.id)
        return image

    def all(self) -> list[Image]:
        found = [image for path in self._record_paths() if (image := self._read(path))]
        return sorted(found, key=lambda image: (image.name, image.id))

    def find(self, name_or_id: str) -> Image | None:
        return next((image for image in self.all() if name_or_id in (image.id, image.name)), None)

    def get(self, name_or_id: str) -> Image:
        """By name, by id, or by as much of an id as no other image's begins with."""
        if found := self.find(name_or_id):
            return found
        matches = [image for image in self.all() if name_or_id and image.id.startswith(name_or_id)]
        if not matches:
            raise ImageNotFound(name_or_id)
        if len(matches) > 1:
            raise Ambiguous("image", name_or_id, tuple(image.id for image in matches))
        return matches[0]

    def save(
        self, image: Image, target: Path, *, force: bool = False, progress: Progress = silent
    ) -> Path:
        """Write a copy, compared with what was added; into a directory, under the image's name.
        An interrupted one leaves what was there before."""
        if target.is_dir():
            target /= f"{image.name}.{image.format}"
        if target.exists() and not force:
            raise NameTaken("a file", str(target))
        part = target.with_name(f".{target.name}.{uuid.uuid4()}")
        try:
            self._copy(image, part, progress)
            os.rename(part, target)
            files.sync_directory(target.parent)
        except OSError as error:
            reason = f"it cannot be written: {error.strerror or error}"
            raise BadOption(str(target), reason, "choose another place") from error
        finally:
            files.remove(part)
        return target

    def remove(self, image: Image) -> None:
        """Forget an image, and its content if no other image has the same. Whether a server
        needs it is for the caller to find out."""
        with self._writing(), self._locks.hold(_LOCK):
            if not self._record(image.id).exists():
                raise ImageNotFound(image.id)
            others = [each for each in self.all() if each.id != image.id]
            files.remove(self._record(image.id))
            files.sync_directory(self._records)
            if image.digest not in {each.digest for each in others}:
                files.remove(self._blob(image))
        LOG.info("removed image %s (%s)", image.name, image.id)

    def leftovers(self) -> list[Path]:
        """What interrupted operations left: no image needs it, and nobody works on it."""
        if not self._records.parent.exists():
            return []
        with self._writing(), self._locks.hold(_LOCK):
            dead = [part for part in self._parts() if not self._locks.is_held(_lock_of(part))]
            return sorted([*dead, *self._unnamed()])

    def sweep(self) -> list[Path]:
        """Remove the leftovers that nobody has open, and say which (B31)."""
        with self._writing(), self._locks.hold(_LOCK):
            swept = [part for part in self._parts() if self._sweep_part(part)]
            for path in self._unnamed():
                if not files.is_open(path):
                    files.remove(path)
                    swept.append(path)
        for path in swept:
            LOG.info("removed %s, left by an interrupted operation", path)
        return sorted(swept)

    # As an ImageSource

    def describe(self, id: ImageId) -> Image:
        if found := self._read(self._record(id)):
            return found
        raise ImageNotFound(id)

    def chunks(self, image: Image) -> Iterator[bytes]:
        with open(self.local_file(image), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def local_file(self, image: Image) -> Path:
        blob = self._blob(image)
        if not _has_size(blob, image.size):
            raise DamagedRecord(self._record(image.id), f"its content, {blob}, is gone")
        return blob

    # Receiving

    @contextmanager
    def _arriving(self) -> Iterator[tuple[ImageId, Path]]:
        """An id for a new image and a file to receive it in, whose lock shows that we live."""
        id = ImageId(str(uuid.uuid4()))
        part = self._incoming / id
        with self._writing():
            for directory in (self._incoming, self._blobs, self._records):
                directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            with self._locks.hold(_lock_of(part)):
                try:
                    yield id, part
                finally:
                    files.remove(part)

    def _publish(self, image: Image, part: Path) -> None:
        with self._locks.hold(_LOCK), undo_on_failure() as undo:
            self._refuse_taken(image.name)
            blob = self._blob(image)
            if not _has_size(blob, image.size):
                os.chmod(part, 0o444)
                undo.callback(files.remove, blob)
                os.rename(part, blob)
                files.sync_directory(self._blobs)
            record = self._record(image.id)
            undo.callback(files.remove, record)
            files.write_atomically(record, codec.encode(ImageRecord(image=image)))

    def _refuse_taken(self, name: str) -> None:
        if name in {image.name for image in self.all()}:
            raise NameTaken("an image", name)

    def _copy(self, image: Image, target: Path, progress: Progress) -> None:
        source = self.local_file(image)
        received = receive_file(source, target, image.format, image.name, progress)
        if received.digest != image.digest:
            raise DamagedRecord(self._record(image.id), f"its content, {source}, has changed")
        os.chmod(target, 0o644)

    # Files

    def _blob(self, image: Image) -> Path:
        return self._blobs / image.digest

    def _record(self, id: ImageId) -> Path:
        return self._records / f"{id}.json"

    def _record_paths(self) -> list[Path]:
        return [path for path in _entries(self._records) if _RECORD.fullmatch(path.name)]

    def _parts(self) -> list[Path]:
        return [path for path in _entries(self._incoming) if _ID.fullmatch(path.name)]

    def _unnamed(self) -> list[Path]:
        """Blobs without a record, and records that were not finished. The lock is held."""
        needed = {image.digest for image in self.all()}
        blobs = [path for path in _entries(self._blobs) if _DIGEST.fullmatch(path.name)]
        records = [path for path in _entries(self._records) if _HALF.fullmatch(path.name)]
        return [*records, *(path for path in blobs if path.name not in needed)]

    def _sweep_part(self, part: Path) -> bool:
        try:
            with self._locks.hold_now(_lock_of(part), part.name):
                if files.is_open(part):
                    return False
                files.remove(part)
                return True
        except Busy:
            return False  # it is being received

    def _read(self, path: Path) -> Image | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            raise FileNotReadable(path, error.strerror or str(error)) from error
        image = codec.decode(content, ImageRecord, path, SCHEMA).image
        if path.stem != image.id or not _DIGEST.fullmatch(image.digest):
            raise DamagedRecord(path, "it is not the record of the image that it is named for")
        return image

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = self._records.parent
            raise StateNotWritable(path, error.strerror or str(error)) from error


def _lock_of(part: Path) -> str:
    return f"incoming:{part.name}"


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileNotReadable(directory, error.strerror or str(error)) from error
