"""Templates that are used while their bytes arrive: a link that becomes a volume. What cannot be
verified part by part is downloaded."""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from millpond.errors import ImageRefused, MillpondError, NotStreamable, StreamNotServed
from millpond.images.formats.inspection import Inspection
from millpond.images.index import Index
from millpond.images.source import ImageSource, Parts
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.stream import StreamAccess, StreamStatus
from millpond.model.template import Link, Prepared, Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.system import files
from millpond.system.files import CHUNK
from millpond.templates.downloading import DownloadingTemplateImagehandler, refuse_larger_disk
from millpond.templates.handler import HandlerContext, LinkPreview
from millpond.templates.known_indexes import KnownIndexes
from millpond.templates.publication import WorkspaceJournal
from millpond.templates.store import TemplateStore, new_record
from millpond.templates.streams.client import reading
from millpond.templates.streams.plan import StreamPlan
from millpond.templates.streams.streams import Streams

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """A template on its way to be served while it arrives."""

    image: Image
    format: DiskFormat
    parts: Parts | None = None
    virtual_size: int = 0

    @property
    def name(self) -> str:
        return template_name(self.image.id, self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A template that streams, on its way into the pool."""

    template: Template
    plan: StreamPlan
    replaces: bool = False
    digest: str = ""
    """SHA-512 of what has arrived."""

    @property
    def name(self) -> str:
        return self.template.volume

    def scale_progress(self, _length: int) -> Progress:
        return noop

    def make_record(self, _path: Path, _pool: str) -> Template:
        return replace(self.template, link=None, digest=self.digest)


class StreamingTemplateImagehandler(DownloadingTemplateImagehandler):
    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._stream_access = context.stream_access
        self._make_room = context.make_room

    @cached_property
    def _access(self) -> StreamAccess:
        assert self._stream_access  # whoever starts us says by what to stream
        return self._stream_access()

    @cached_property
    def _streams(self) -> Streams:
        return Streams(self._store, self._access)

    @classmethod
    def preview_stream(
        cls,
        images: ImageSource,
        store: TemplateStore | None,
        access: StreamAccess,
        image: Image,
        format: DiskFormat,
    ) -> LinkPreview:
        known = KnownIndexes(store.sidecar) if store else None
        try:
            parts = find_parts(images, access, image, format)
            find_trusted_index(images, known, image, access)
        except NotStreamable as error:
            return LinkPreview(not_streamed=error.reason)
        except MillpondError as error:
            return LinkPreview(not_streamed=str(error))
        return LinkPreview(streamed=parts.location)

    def init(self) -> None:
        """Undo what was interrupted; serve again what nobody serves."""
        super().init()
        for name in self._streams.names():
            if self._store.is_worked_on(name):
                continue
            try:
                with self._store.lock(name):
                    self._look_after(name)
            except MillpondError as error:
                LOG.warning("%s", error)

    def fetch_image(self, image: Image, format: DiskFormat, progress: Progress = noop) -> Template:
        return self.reach(super().fetch_image(image, format, progress))

    def reach(self, template: Template) -> Template:
        if not template.streams:
            return template
        try:
            self._streams.serve(template.volume)
        except StreamNotServed:
            found = self._store.find(template.volume)
            if found and not found.streams:
                return found  # it has arrived meanwhile
            raise
        return template

    def is_dangling(self, template: Template) -> bool:
        return template.streams and not self.status(template.volume).served

    def status(self, name: str) -> StreamStatus:
        return self._streams.status(name)

    def settle(self, name: str) -> None:
        """Publish it, if all of it is there; what was interrupted in that goes forward."""
        with self._store.lock(name):
            self._publication.resume(name)
            template = self._store.find(name)
            if template and template.streams:
                plan, file = self._streams.directory(name).open()
                file.close()
                if file.is_whole:
                    arrived = Arrived(template=template, plan=plan)
                    self._publication.run(arrived, self.filling())
                    LOG.info("template %s has arrived", name)

    def streaming(self) -> Verb[Streaming]:
        return Verb(
            "stream",
            (
                Step("look", self._look),
                Step("index", as_step(self._index), self._end),
                Step("serve", as_step(lambda wanted: self._streams.serve(wanted.name))),
                Step("inspect", self._inspect),
                Step("record", as_step(self._record)),
            ),
            finished=noop,
            undone=noop,
        )

    def filling(self) -> Verb[Arrived]:
        return self._publication.filling(
            (Step("fill", as_step(self._take_up)), Step("compare", self._compare))
        )

    def _prepare(self, image: Image, format: DiskFormat, progress: Progress) -> Template:
        name = template_name(image.id, format)
        if self._store.has(name):  # somebody's file, or one that is wrong
            return super()._prepare(image, format, progress)
        self._streams.end(name)
        wanted = Streaming(image=image, format=format)
        try:
            journal.run(self.streaming(), wanted, WorkspaceJournal(self._store), self._watch)
        except (NotStreamable, StreamNotServed) as error:
            LOG.warning("image %s is downloaded, not streamed: %s", image.name, error.reason)
            return super()._prepare(image, format, progress)
        LOG.info("template %s of image %s is served while it arrives", name, image.id)
        progress(image.size)
        template = self._store.find(name)
        assert template is not None  # its record was just written, and the lock is held
        return template

    def _drop(self, name: str) -> None:
        template = self._store.find(name)
        if template and template.streams:
            self._store.forget(name)
        else:
            super()._drop(name)
        self._streams.end(name)

    def _resume(self, name: str) -> Template | None:
        found = super()._resume(name)
        if not found:
            self._streams.end(name)
        return found

    def _look_after(self, name: str) -> None:
        """Without a record it was begun and never served to anybody. Its lock is held."""
        if self._store.has_record(name):
            self._streams.serve(name)
        else:
            self._streams.end(name)

    def _look(self, wanted: Streaming) -> Streaming:
        parts = find_parts(self._images, self._access, wanted.image, wanted.format)
        if not self._store.local:
            raise NotStreamable("the files of the host cannot be opened here")
        if files.is_shared(self._store.cache):
            raise NotStreamable("its cache lies on a file system of the network")
        try:
            parts.read(0, 1)
        except MillpondError as error:
            raise NotStreamable(str(error)) from error
        return replace(wanted, parts=parts)

    def _index(self, wanted: Streaming) -> None:
        image, parts = wanted.image, wanted.parts
        assert parts is not None  # look found them
        known = KnownIndexes(self._store.sidecar)
        index = find_trusted_index(self._images, known, image, self._access)
        plan = StreamPlan(
            name=wanted.name,
            image=image.id,
            url=parts.url,
            size=image.size,
            root=index.root,
            digest=image.expected,
            socket=self._streams.source(wanted.name).socket,
            reader=self._access.reader(),
            fill_rate=self._access.fill_rate,
            fill_delay=self._access.fill_delay,
            patience=self._access.patience,
            settle=(*self._access.settle, wanted.name),
        )
        needed = self._streams.begin(plan, index)
        with self._store.lock_room():
            self._make_room(needed)
            self._streams.reserve(wanted.name, needed)

    def _end(self, wanted: Streaming) -> None:
        self._streams.end(wanted.name)

    def _inspect(self, wanted: Streaming) -> Streaming:
        """As strictly as what is downloaded; what is seen here is what QEMU will see (B46)."""
        image = wanted.image
        try:
            with reading(self._streams.source(wanted.name).socket) as read:
                finding = Inspection(image.format, image.name).look_at(read, image.size)
        except (OSError, EOFError) as error:
            reason = self.status(wanted.name).waits_for or str(error)
            raise NotStreamable(reason) from error
        refuse_larger_disk(image, finding.virtual_size)
        return replace(wanted, virtual_size=finding.virtual_size)

    def _record(self, wanted: Streaming) -> None:
        assert wanted.parts is not None  # look found them
        source = self._streams.source(wanted.name)
        record = new_record(
            wanted.name,
            wanted.image,
            pool=self._store.pool.name,
            prepared=Prepared.STREAM,
            size=wanted.image.size,
            virtual_size=wanted.virtual_size,
            format=wanted.format,
            link=Link(location=wanted.parts.location, nbd=source),
        )
        self._store.put(record)

    def _take_up(self, arrived: Arrived) -> None:
        """Another name of the same file: it is served from there until nobody reads it."""
        part = self._publication.part(arrived)
        part.unlink(missing_ok=True)
        os.link(self._streams.directory(arrived.name).part, part)

    def _compare(self, arrived: Arrived) -> Arrived:
        stated = arrived.plan.digest
        whole, other = hashlib.sha512(), hashlib.new(stated.algorithm)
        with self._publication.part(arrived).open("rb", buffering=0) as file:
            while piece := file.read(CHUNK):
                whole.update(piece)
                if stated.algorithm != whole.name:
                    other.update(piece)
        found = whole if stated.algorithm == whole.name else other
        if found.hexdigest() != stated.value:
            reason = f"its {stated.algorithm} is not the one that was stated"
            raise ImageRefused(str(arrived.template.image), reason)
        return replace(arrived, digest=whole.hexdigest())


def find_parts(
    images: ImageSource, access: StreamAccess, image: Image, format: DiskFormat
) -> Parts:
    """Raises NotStreamable, by what is known without asking its server."""
    if image.format.content is not format:
        reason = f"it is {image.format}, and disks are made from {format} here"
        raise NotStreamable(reason)
    if format not in _READ_IN_PARTS:
        raise NotStreamable(f"disks are not made from parts of {format}")
    if obstacle := access.find_obstacle(image):
        raise NotStreamable(obstacle)
    if images.open(image).begin_proof:
        raise NotStreamable("its signature is of the whole image")
    if images.local_file(image):
        raise NotStreamable("all of it is on this machine already")
    parts = images.find_parts(image)
    if parts is None:
        raise NotStreamable("its source gives no parts of it")
    return parts


def find_trusted_index(
    images: ImageSource, known: KnownIndexes | None, image: Image, access: StreamAccess
) -> Index:
    """Raises NotStreamable. Whoever makes up an index makes up the image."""
    if known and (index := known.find(image)):
        return index
    found = images.find_index(image)
    if found is None:
        raise NotStreamable("no index says what its parts must be")
    if not (images.vouches_for_index or access.trust_source):
        reason = "its index is believed by nobody here: [image_cache] trust_source is off"
        raise NotStreamable(reason)
    return found


_READ_IN_PARTS: Sequence[DiskFormat] = (DiskFormat.RAW, DiskFormat.QCOW2)
