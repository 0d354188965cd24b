"""Templates whose bytes are brought into the pool: linked from this machine's catalogue where
that is possible, received in one pass otherwise, and converted where a backend needs it."""

import logging
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.errors import ImageRefused, MillpondError, ToolFailed
from millpond.images.formats import written
from millpond.images.receive import receive
from millpond.images.verify import find_fault
from millpond.model.callbacks import Progress, noop, scaled
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.sizes import format_size, whole_sectors
from millpond.model.template import Prepared, Template
from millpond.records.journal import Step, Verb
from millpond.system import files, qemu_img
from millpond.system.qemu_img import ToolProgress
from millpond.templates.handler import BaseTemplateImagehandler, HandlerContext
from millpond.templates.known_indexes import KnownIndexes
from millpond.templates.publication import Publication
from millpond.templates.store import new_record

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePreparation:
    """An image's template on its way into the pool."""

    image: Image
    format: DiskFormat
    replaces: bool
    progress: Progress = noop
    """Told of as many bytes as the image has, whatever way they go."""
    told: int = 0
    prepared: Prepared = Prepared.CONVERSION
    digest: str = ""
    """SHA-512 of the image's bytes, as they were received."""
    signature: str = ""
    """The image's, if it was verified meanwhile."""

    @property
    def name(self) -> str:
        return template_name(self.image.id, self.format)

    @property
    def converts(self) -> bool:
        return self.image.format.content is not self.format

    def scale_progress(self, length: int) -> Progress:
        """What was not told when the image came here is told on its way to the host."""
        return scaled(self.progress, length, self.image.size - self.told)

    def make_record(self, path: Path, pool: str) -> Template:
        converted = self.prepared is Prepared.CONVERSION
        return new_record(
            self.name,
            self.image,
            pool=pool,
            prepared=self.prepared,
            size=path.stat().st_size,
            virtual_size=_virtual_size(path, self),
            format=self.format,
            digest=None if converted else self.digest or self.image.digest,
            signature=self.signature,
        )


class DownloadingTemplateImagehandler(BaseTemplateImagehandler):
    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._adopt_image = context.adopt_image
        self._publication = Publication(
            context.store, context.users, context.watch, context.make_room
        )

    def init(self) -> None:
        """Finish or undo what was interrupted. Templates themselves outlive us."""
        for name in self._store.unfinished():
            if self._store.is_worked_on(name):
                continue
            try:
                with self._store.lock(name):
                    self._cleanup(name)
            except MillpondError as error:
                LOG.warning("what was begun of template %s is still there: %s", name, error)

    def _cleanup(self, name: str) -> None:
        self._publication.cleanup(name)

    def _resume(self, name: str) -> Template | None:
        return self._publication.resume(name)

    def verb(self) -> Verb[ImagePreparation]:
        return self._publication.verb(self._making())

    def _making(self) -> tuple[Step[ImagePreparation], ...]:
        return Step("receive", self._receive), Step("convert", self._convert)

    def _prepare(self, image: Image, format: DiskFormat, progress: Progress) -> Template:
        self._store.refuse(format)
        name = template_name(image.id, format)
        if self._store.has(name) and (adopted := self._adopt(image, format)):
            return adopted
        replaces = self._publication.will_replace(name)
        wanted = ImagePreparation(image=image, format=format, replaces=replaces, progress=progress)
        template = self._publication.run(wanted, self.verb())
        LOG.info(
            "prepared template %s of image %s by %s", wanted.name, image.id, template.prepared
        )
        return template

    def _adopt(self, image: Image, format: DiskFormat) -> Template | None:
        """With its signature verified, if one is asked for."""
        stream = self._images.open(image)
        adopted = self._adopt_image(
            image, format, lambda path, image: find_fault(path, image, stream)
        )
        if adopted and stream.begin_proof:
            adopted = replace(adopted, signature=image.signature)
            self._store.put(adopted)
        return adopted

    def _drop(self, name: str) -> None:
        self._publication.remove(name)

    def _receive(self, wanted: ImagePreparation) -> ImagePreparation:
        """The image's own bytes into the workspace; a local file to be converted stays put."""
        local = self._trusted_file(wanted)
        part = self._publication.part(wanted)
        part.unlink(missing_ok=True)  # of an attempt that was interrupted
        with self._space(wanted.image.size):
            if local is None:
                return self._download(wanted, part)
            if wanted.converts:
                return wanted
            if self._store.local:
                how = files.link_or_copy(local, part, wanted.progress)
                return replace(wanted, prepared=how)
            files.link_or_copy(local, part)  # what counts is the way to the host
            return replace(wanted, prepared=Prepared.UPLOAD)

    def _trusted_file(self, wanted: ImagePreparation) -> Path | None:
        """The image, if it is on this machine. Not for what comes beneath disks that are there:
        those bytes are all read, and compared with the image's digest on their way."""
        return None if wanted.replaces else self._images.local_file(wanted.image)

    def _download(self, wanted: ImagePreparation, part: Path) -> ImagePreparation:
        """Half of the way, if the bytes are converted or go on to another machine."""
        image = wanted.image
        goes_on = wanted.converts or not self._store.local
        told = image.size // 2 if goes_on else image.size
        progress = scaled(wanted.progress, image.size, told)
        stream = self._images.open(image)
        received = receive(stream, part, image.format, image.name, progress)
        refuse_larger_disk(image, received.virtual_size)
        if stream.digest:
            KnownIndexes(self._store.sidecar).note(image, received.index)
        how = Prepared.COPY if self._images.local_file(image) else Prepared.DOWNLOAD
        image = replace(image, virtual_size=received.virtual_size)
        return replace(
            wanted,
            image=image,
            prepared=how,
            digest=received.digest,
            signature=image.signature if stream.begin_proof else "",
            told=told,
        )

    def _convert(self, wanted: ImagePreparation) -> ImagePreparation:
        if not wanted.converts:
            return wanted
        source = self._trusted_file(wanted) or self._publication.part(wanted)
        target = self._publication.part(wanted).with_name("converted")
        target.unlink(missing_ok=True)  # an orphan of a killed process may still write to that one
        rest = wanted.image.size - wanted.told
        told = ToolProgress(
            progress=wanted.progress, total=rest if self._store.local else rest // 2
        )
        with self._space(wanted.image.virtual_size):
            qemu_img.convert(source, wanted.image.format.content, target, wanted.format, told)
        _verify(target, wanted)
        os.replace(target, self._publication.part(wanted))
        return replace(wanted, prepared=Prepared.CONVERSION, told=wanted.told + told.total)

    def _space(self, needed: int) -> AbstractContextManager[None]:
        """In the cache's own file system, or in the state directory's."""
        where = self._store.sidecar
        shared = f"pool {self._store.pool.name} ({self._store.cache})"
        place = shared if self._store.local else str(where)
        return files.explaining_lack_of_space(where, place, format_size(needed))


def refuse_larger_disk(image: Image, size: int) -> None:
    """Than its source says, if it does: disks were planned by that. Of a VHD it may be smaller,
    whose size is counted in two ways."""
    if image.virtual_size and size > whole_sectors(image.virtual_size):
        found, said = format_size(size), format_size(image.virtual_size)
        reason = f"it holds a disk of {found}, and its source says {said}"
        raise ImageRefused(image.name, reason, "upload it to its source again")


def _virtual_size(path: Path, wanted: ImagePreparation) -> int:
    """From what we wrote; of an image that was kept as it came, from its inspection."""
    if wanted.converts:
        return written.virtual_size(path, wanted.format)
    return wanted.image.virtual_size


def _verify(path: Path, wanted: ImagePreparation) -> None:
    if (size := written.virtual_size(path, wanted.format)) < wanted.image.virtual_size:
        raise ToolFailed(
            "qemu-img",
            f"the converted image has {format_size(size)} instead of "
            f"{format_size(wanted.image.virtual_size)}",
        )
