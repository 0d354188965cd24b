"""Bringing images into the catalogue, and copies of them out: all that reads an image's bytes."""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from millpond.errors import BadOption, DamagedRecord, ImageRefused, NameTaken
from millpond.images.catalogue import LOCK, Catalogue, lock_of
from millpond.images.index import Index, make_index
from millpond.images.packing import Packing
from millpond.images.receive import Received, receive, receive_file
from millpond.images.source import Stream
from millpond.images.suffixes import stated_format, stated_name, stated_packing
from millpond.model.boot_images import find_boot_images
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.labels import Labels
from millpond.model.names import ImageId, check_name
from millpond.model.transfer import Digest
from millpond.records.journal import undo_on_failure
from millpond.system import files

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Referral:
    """An image whose bytes stay where they are, as far as it was looked at."""

    name: str
    format: ImageFormat
    url: str
    """With all that it says; a password, too."""
    location: str
    """The same for people."""
    index: Index
    digest: str
    """SHA-512 of the whole."""
    virtual_size: int


class Publish(Protocol):
    def __call__(self, received: Received, more: Mapping[str, str] | None = None) -> Image:
        """Add what was received, with more properties than were known before."""
        ...


class Intake(Catalogue):
    """The catalogue with its doors open: apart from it, because inspection costs a tenth of a
    second to load, which a list of servers need not pay."""

    def add(
        self,
        path: Path,
        *,
        name: str | None = None,
        format: ImageFormat | None = None,
        digest: Digest | None = None,
        properties: Mapping[str, str] | None = None,
        progress: Progress = noop,
    ) -> Image:
        """Receive an image from a file ('-' is standard input). What its name and format are
        not told, the file's name must say."""
        name, format = name or stated_name(path), format or stated_format(path)
        with self.adding(name, format, properties) as (part, publish):
            packing = stated_packing(path.name, format)
            return publish(
                receive_file(path, part, format, name, progress, digest=digest, packing=packing)
            )

    def fetch(
        self,
        stream: Stream,
        *,
        name: str,
        format: ImageFormat,
        packing: Packing | None = None,
        properties: Mapping[str, str] | None = None,
        progress: Progress = noop,
    ) -> Image:
        """Receive an image of another source."""
        with self.adding(name, format, properties) as (part, publish):
            return publish(receive(stream, part, format, name, progress, packing=packing))

    def refer(self, referral: Referral, *, properties: Mapping[str, str]) -> Image:
        """Add an image without its bytes, which are read from where they are, part by part."""
        name = check_name("an image", referral.name)
        id = ImageId(str(uuid.uuid4()))
        image = Image(
            id=id,
            name=name,
            format=referral.format,
            size=referral.index.size,
            virtual_size=referral.virtual_size,
            digest=referral.digest,
            index_root=referral.index.root,
            created=_now(),
            properties=self._with_ids(referral.format, properties),
            location=referral.location,
        )
        with self._writing(), self._locks.hold(LOCK), undo_on_failure() as undo:
            for directory in (self._indexes, self._records):
                directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._refuse_taken(name)
            for other in self.every():
                if other.digest == image.digest and other.index_root != image.index_root:
                    reason = f"image {other.name!r} has the same SHA-512, and another index"
                    raise ImageRefused(name, reason, "have its publisher index it again")
            if not self._index(image).exists():
                undo.callback(files.remove, self._index(image))
            self._put_index(image, referral.index)
            undo.callback(files.remove, self._record(id))
            self._write_record(image, referral.url)
        LOG.info("added image %s (%s), whose bytes stay where they are", name, id)
        return image

    @contextmanager
    def adding(
        self, name: str, format: ImageFormat, properties: Mapping[str, str] | None
    ) -> Iterator[tuple[Path, Publish]]:
        """A file for a new image, and what adds it when it was received there and inspected. What
        makes the image impossible is an error before a byte of it is read."""
        name = check_name("an image", name)
        self._refuse_taken(name)
        found = self._with_ids(format, properties or {})

        def publish(received: Received, more: Mapping[str, str] | None = None) -> Image:
            image = _image(id, name, format, received, {**found, **(more or {})})
            self._publish(image, part, received.index)
            LOG.info("added image %s (%s)", image.name, image.id)
            return image

        with self.arriving() as (id, part):
            yield part, publish

    def rename(self, image: Image, name: str) -> Image:
        """Servers keep the name that it had when they were made."""
        name = check_name("an image", name)
        with self._writing(), self._locks.hold(LOCK):
            current = self.describe(image.id)
            if current.name == name:
                return current
            self._refuse_taken(name)
            renamed = replace(current, name=name)
            self._write_record(renamed)
        LOG.info("renamed image %s (%s) to %s", current.name, image.id, name)
        return renamed

    def change(
        self, image: Image, description: str | None, labels: Callable[[Labels], Labels]
    ) -> Image:
        """None: the description stays."""
        with self._writing(), self._locks.hold(LOCK):
            current = self.describe(image.id)
            said = current.description if description is None else description
            changed = replace(current, description=said, labels=labels(current.labels))
            self._write_record(changed)
        LOG.info("changed image %s (%s)", current.name, image.id)
        return changed

    def save(
        self, image: Image, target: Path, *, force: bool = False, progress: Progress = noop
    ) -> Path:
        """Write a copy, compared with what was added; into a directory, under the image's name.
        An interrupted one leaves what was there before."""
        if os.path.isdir(target):
            target /= f"{image.name}.{image.format}"
        if os.path.exists(target) and not force:
            raise NameTaken("a file", str(target))
        part = target.with_name(f".{uuid.uuid4()}")  # however long the target's own name is
        try:
            self._copy(image, part, progress)
            os.rename(part, target)
            files.sync_directory(target.parent)
        except OSError as error:
            reason = f"it cannot be written: {error.strerror or error}"
            raise BadOption(str(target), reason, "choose another place") from error
        finally:
            with suppress(OSError):
                files.remove(part)
        return target

    def index(self, image: Image, progress: Progress = noop) -> Image:
        """Make the index of an image that has none."""
        whole = hashlib.new(image.digest_algorithm)

        def pieces() -> Iterator[bytes]:
            for piece in self.open(image).chunks(0):
                whole.update(piece)
                progress(len(piece))
                yield piece

        index = make_index(pieces())
        self._refuse_changed(image, whole.hexdigest())
        with self._writing(), self._locks.hold(LOCK):
            self._indexes.mkdir(exist_ok=True, mode=0o750)
            indexed = replace(self.describe(image.id), index_root=index.root)
            self._put_index(indexed, index)
            self._write_record(indexed)
        LOG.info("indexed image %s (%s)", image.name, image.id)
        return indexed

    @contextmanager
    def arriving(self) -> Iterator[tuple[ImageId, Path]]:
        """An id for a new image and a file to receive it in, whose lock shows that we live."""
        id = ImageId(str(uuid.uuid4()))
        part = self._incoming / id
        with self._writing():
            for directory in (self._incoming, self._blobs, self._indexes, self._records):
                directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            with self._locks.hold(lock_of(part)):
                try:
                    yield id, part
                finally:
                    files.remove(part)

    def _publish(self, image: Image, part: Path, index: Index) -> None:
        with self._locks.hold(LOCK), undo_on_failure() as undo:
            self._refuse_taken(image.name)
            find_boot_images(image.format, image.properties, lambda id: self.describe(ImageId(id)))
            blob = self._blob(image)
            if not _holds(blob, image.digest):
                os.chmod(part, 0o444)
                if not blob.exists():  # else other images have it, and it is better than it was
                    undo.callback(files.remove, blob)
                os.rename(part, blob)
                files.sync_directory(self._blobs)
            if not self._index(image).exists():
                undo.callback(files.remove, self._index(image))
            self._put_index(image, index)
            undo.callback(files.remove, self._record(image.id))
            self._write_record(image)

    def _put_index(self, image: Image, index: Index) -> None:
        """Without an image it is a leftover. Its content is that of the name: one that is replaced
        is the same, or was damaged."""
        with files.explaining_lack_of_space(self._indexes):
            files.write_atomically(self._index(image), index.digests)

    def _refuse_taken(self, name: str) -> None:
        if name in {image.name for image in self.every()}:
            raise NameTaken("an image", name)

    def _with_ids(self, format: ImageFormat, properties: Mapping[str, str]) -> dict[str, str]:
        """A kernel and a ramdisk may be named by their names, which others may take later."""
        found = find_boot_images(format, properties, self.get)
        return {**properties, **(found.properties if found else {})}

    def _copy(self, image: Image, target: Path, progress: Progress) -> None:
        if image.location:
            received = receive(self.open(image), target, image.format, image.name, progress)
        else:
            content = self._content(image)
            received = receive_file(content, target, image.format, image.name, progress)
        self._refuse_changed(image, received.digest)
        os.chmod(target, 0o644)

    def _refuse_changed(self, image: Image, digest: str) -> None:
        if digest != image.digest:
            place = image.location or self._content(image)
            reason = f"its content, {place}, has changed"
            raise DamagedRecord(self._record(image.id), reason)


def _holds(blob: Path, digest: str) -> bool:
    """Whether it is there, and its bytes are still what they were. What cannot be read is not."""
    try:
        with blob.open("rb") as file:
            return hashlib.file_digest(file, "sha512").hexdigest() == digest
    except OSError:
        return False


def _image(
    id: ImageId, name: str, format: ImageFormat, found: Received, properties: Mapping[str, str]
) -> Image:
    return Image(
        id=id,
        name=name,
        format=format,
        size=found.size,
        virtual_size=found.virtual_size,
        digest=found.digest,
        index_root=found.index.root,
        created=_now(),
        properties=dict(properties),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
