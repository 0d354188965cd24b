"""Templates whose bytes are brought into the pool: linked from this machine's catalogue where
that is possible, received in one pass otherwise, and converted where a backend needs it."""

import logging
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import ImageRefused, PoolUnusable, ToolFailed, VolumeExists
from millpond.images.receive import receive
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.sizes import format_size
from millpond.model.template import Prepared, Template
from millpond.records import codec, journal
from millpond.records.journal import Step, Verb
from millpond.system import files, qcow2, qemu_img
from millpond.system.files import Progress, silent
from millpond.templates.handler import BaseTemplateImagehandler
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A template on its way into the pool."""

    image: Image
    format: DiskFormat
    progress: Progress = silent
    prepared: Prepared = Prepared.CONVERSION

    @property
    def name(self) -> str:
        return template_name(self.image.id, self.format)

    @property
    def converts(self) -> bool:
        return self.image.format.content is not self.format


class DownloadingTemplateImagehandler(BaseTemplateImagehandler):
    def init(self) -> None:
        """Undo the preparations that were interrupted. Templates themselves outlive us."""
        for name in self._store.unfinished():
            if not self._store.is_worked_on(name):
                with self._store.lock(name):
                    self._clear(name)

    def verb(self) -> Verb[Preparation]:
        return Verb(
            "prepare",
            (
                Step("receive", self._receive),
                Step("convert", self._convert),
                Step("publish", self._publish, self._withdraw),
                Step("refresh", self._refresh),
                Step("record", self._record),
            ),
        )

    def _prepare(self, image: Image, format: DiskFormat, progress: Progress) -> Template:
        wanted = Preparation(image=image, format=format, progress=progress)
        self._refuse_a_foreign_file(wanted.name)
        self._store.discard_workspace(wanted.name)
        done = journal.run(self.verb(), wanted, WorkspaceJournal(self._store), self._watch)
        template = self._store.find(done.name)
        assert template is not None  # _record wrote it, and the lock is held
        LOG.info("prepared template %s of image %s by %s", done.name, image.id, done.prepared)
        return template

    def _receive(self, wanted: Preparation) -> Preparation:
        """The image's own bytes into the workspace; a local file to be converted stays put."""
        local = self._images.local_file(wanted.image)
        part = self._part(wanted)
        with self._space(wanted.image.size):
            if local is None:
                self._download(wanted, part)
                return replace(wanted, prepared=Prepared.DOWNLOAD)
            if wanted.converts:
                return wanted
            how = files.link_or_copy(local, part, wanted.progress)
        return replace(wanted, prepared=how)

    def _download(self, wanted: Preparation, part: Path) -> None:
        image = wanted.image
        chunks = self._images.chunks(image)
        received = receive(chunks, part, image.format, image.name, wanted.progress)
        if received.digest != image.digest:
            raise ImageRefused(image.name, "its bytes are not those that its source declared")

    def _convert(self, wanted: Preparation) -> Preparation:
        if not wanted.converts:
            return wanted
        source = self._images.local_file(wanted.image) or self._part(wanted)
        target = self._store.workspace(wanted.name) / "converted"
        with self._space(wanted.image.virtual_size):
            qemu_img.convert(source, wanted.image.format.content, target, wanted.format)
        _verify(target, wanted)
        os.replace(target, self._part(wanted))
        wanted.progress(wanted.image.size)
        return replace(wanted, prepared=Prepared.CONVERSION)

    def _publish(self, wanted: Preparation) -> Preparation:
        """Root's and read-only before it is in the pool, durable before it has a record."""
        part = self._part(wanted)
        with open(part, "rb") as file:
            os.fchmod(file.fileno(), 0o444)
            os.fchown(file.fileno(), os.geteuid(), os.getegid())
            files.sync(file.fileno())
        try:
            os.rename(part, self._store.cache / wanted.name)
            files.sync_directory(self._store.cache)
        except FileNotFoundError as error:
            reason = f"its directory {self._store.cache} is missing"
            raise PoolUnusable(self._store.pool.name, reason) from error
        return wanted

    def _refresh(self, wanted: Preparation) -> Preparation:
        self._store.pool.refresh()
        if self._store.pool.find(wanted.name) is None:
            raise PoolUnusable(
                self._store.pool.name,
                f"libvirt does not see what lies in {self._store.cache} on this machine",
            )
        return wanted

    def _record(self, wanted: Preparation) -> Preparation:
        path = self._store.cache / wanted.name
        converted = wanted.prepared is Prepared.CONVERSION
        self._store.put(
            Template(
                image=wanted.image.id,
                image_digest=wanted.image.digest,
                pool=self._store.pool.name,
                volume=wanted.name,
                format=wanted.format,
                virtual_size=_virtual_size(path, wanted),
                size=path.stat().st_size,
                prepared=wanted.prepared,
                digest=None if converted else wanted.image.digest,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )
        return wanted

    def _drop(self, name: str) -> None:
        self._store.remove(name)
        self._store.pool.refresh()

    def _clear(self, name: str) -> None:
        """Remove what an interrupted preparation left: only what its own journal names (B31)."""
        if self._store.find(name) is None:
            self._withdraw_file(name)
        self._store.discard_workspace(name)
        LOG.info("cleared away an interrupted preparation of template %s", name)

    def _withdraw(self, wanted: Preparation) -> None:
        self._withdraw_file(wanted.name)

    def _withdraw_file(self, name: str) -> None:
        if (self._store.cache / name).exists():
            self._drop(name)

    def _refuse_a_foreign_file(self, name: str) -> None:
        """What nothing of ours names is somebody else's: reported, never replaced."""
        if (self._store.cache / name).exists() and not self._store.is_ours(name):
            raise VolumeExists(self._store.pool.name, name)

    def _part(self, wanted: Preparation) -> Path:
        return self._store.workspace(wanted.name) / "part"

    def _space(self, needed: int) -> AbstractContextManager[None]:
        place = f"pool {self._store.pool.name} ({self._store.cache})"
        return files.explaining_lack_of_space(self._store.cache, place, format_size(needed))


class WorkspaceJournal:
    """The step of a template's preparation, in its workspace."""

    def __init__(self, store: TemplateStore) -> None:
        self._store = store

    def enter(self, state: Preparation, verb: str, step: str) -> Preparation:
        note = {"schema": 1, "verb": verb, "step": step, "image": state.image.id}
        path = self._store.workspace(state.name) / "journal.json"
        files.write_atomically(path, codec.encode(note))
        return state

    def finish(self, state: Preparation) -> Preparation:
        self._store.discard_workspace(state.name)
        return state

    def forget(self, state: Preparation) -> None:
        self._store.discard_workspace(state.name)


def _virtual_size(path: Path, wanted: Preparation) -> int:
    """From what we wrote; of a format that was kept as it came, from its inspection."""
    if wanted.format is DiskFormat.RAW:
        return path.stat().st_size
    if wanted.converts:
        return qcow2.read_header(path).virtual_size
    return wanted.image.virtual_size


def _verify(path: Path, wanted: Preparation) -> None:
    """A conversion that lost something says nothing of it: look."""
    if wanted.format is DiskFormat.QCOW2 and not qcow2.read_header(path).stands_alone:
        raise ToolFailed("qemu-img", "the converted image does not stand alone")
    if (size := _virtual_size(path, wanted)) < wanted.image.virtual_size:
        raise ToolFailed(
            "qemu-img",
            f"the converted image has {format_size(size)} instead of "
            f"{format_size(wanted.image.virtual_size)}",
        )
