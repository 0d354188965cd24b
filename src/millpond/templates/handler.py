"""Image to template: the interface that every way of preparing one has (specs 003)."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stevedore
from stevedore.exception import NoUniqueMatch

from millpond.errors import BadOption, ImageRefused, TemplateInUse
from millpond.images.source import ImageSource
from millpond.model.callbacks import Progress, noop
from millpond.model.cloud import LinkAccess
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, template_name
from millpond.model.stream import StreamAccess
from millpond.model.template import Prepared, Template
from millpond.records.journal import Watch
from millpond.templates.publication import MakeRoom, Users
from millpond.templates.store import TemplateStore

LOG = logging.getLogger(__name__)

_NOT_OURS = (Prepared.LINK, Prepared.ADOPTION)
"""Their bytes were made by somebody else, and disks may be backed by exactly those."""

NoteUse = Callable[[str], None]
"""Told the name of each template that a disk is about to be made from, while its lock is held."""


FindFault = Callable[[Path, Image], str]
"""What is wrong with a file that should hold an image, in words; empty if nothing is."""
AdoptImage = Callable[[Image, DiskFormat, FindFault], Template | None]
"""Take over a file of the cache that somebody else has made of an image, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """What a handler works with. One value, so that a plug-in's constructor stays as it is."""

    store: TemplateStore
    images: ImageSource
    users: Users
    watch: Watch = noop
    note_use: NoteUse = noop
    make_room: MakeRoom = noop
    adopt_image: AdoptImage = noop
    link_access: Callable[[], LinkAccess] | None = None
    """By whom a handler links that does; asked for when it first does."""
    stream_access: Callable[[], StreamAccess] | None = None
    """The same of one that streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPreview:
    """What a handler would do with an image, as far as that is known without doing it."""

    location: str = ""
    """Where it would be linked; empty where its bytes are brought here."""
    not_linked: str = ""
    """Why a handler that links would not."""
    streamed: str = ""
    """From where its bytes would come while it is used already."""
    not_streamed: str = ""
    """Why a handler that streams would not."""


def find_known(store: TemplateStore, name: str) -> Template | None:
    """For a disk that will use it: libvirt knows it, also if another host put it into the pool."""
    template = store.find(name)
    if template and not template.link and not store.pool.find(name):
        store.pool.refresh()
    return template


class BaseTemplateImagehandler(ABC):
    """Chosen by the option ``template_image_handler``."""

    def __init__(self, context: HandlerContext) -> None:
        self._store = context.store
        self._images = context.images
        self._users = context.users
        self._watch = context.watch
        self._note_use = context.note_use

    @classmethod
    def preview_link(
        cls, _images: ImageSource, _links: LinkAccess, _image: Image, _format: DiskFormat
    ) -> LinkPreview:
        """How a template would be prepared. Nothing is made, not even a cache."""
        return LinkPreview()

    @classmethod
    def preview_stream(
        cls,
        _images: ImageSource,
        _store: TemplateStore | None,
        _access: StreamAccess,
        _image: Image,
        _format: DiskFormat,
    ) -> LinkPreview:
        """The same of one that streams, where the cache is there already."""
        return LinkPreview()

    @abstractmethod
    def init(self) -> None:
        """Prepare again what a restart has undone."""

    def reach(self, template: Template) -> Template:
        """See to it that this host reaches the bytes of a template that is a link: a disk that
        stands on it is about to be used. Raises what keeps it from that."""
        return template

    def is_dangling(self, _template: Template) -> bool:
        """Whether it is a link that init() would make again, or remove."""
        return False

    def fetch_image(self, image: Image, format: DiskFormat, progress: Progress = noop) -> Template:
        """The image's template in this format, prepared once however many ask at once."""
        name = template_name(image.id, format)
        with self._store.lock(name):
            template = find_known(self._store, name) or self._resume(name)
            if template and self._is_proven(template, image):
                LOG.debug("template %s of image %s is there already", name, image.id)
            else:
                template = self._prepare(image, format, progress)
                self._refuse_unproven(template, image)
            self._note_use(name)
            return template

    def _is_proven(self, template: Template, image: Image) -> bool:
        """Whether it will do for who asks. One that was made before anybody trusted certificates
        is prepared again, this time with the signature, if it is ours to replace: what was made
        of it, here or in Ceph, has the same bytes then."""
        if not image.trusted:
            return True
        self._images.open(image)  # raises if its signer is not trusted
        if template.signature == image.signature:
            return True
        if template.prepared in _NOT_OURS or template.image_digest != image.digest:
            self._refuse_unproven(template, image)
        return False

    def _refuse_unproven(self, template: Template, image: Image) -> None:
        if image.trusted and template.signature != image.signature:
            reason = "its template on this host was made without verifying the signature"
            advised = f"it can be verified once template {template.volume} is removed"
            raise ImageRefused(image.name, reason, advised)

    def hold(self, template: Template) -> AbstractContextManager[None]:
        """Nobody removes it meanwhile."""
        return self._store.lock(template.volume)

    def renew_image(self, image: Image, format: DiskFormat) -> Template:
        """In place of a template that is wrong. Disks may stand on it, so it stays until the new
        one is whole."""
        with self._store.lock(template_name(image.id, format)):
            return self._prepare(image, format, noop)

    def remove_image(self, image: ImageId, format: DiskFormat) -> None:
        """Remove a template that nothing uses; one that is gone already is no error."""
        name = template_name(image, format)
        with self._store.lock(name):
            if users := self._users(name):
                raise TemplateInUse(name, users)
            if found := self._store.find(name):
                self.drop(found)

    def drop(self, template: Template) -> None:
        """Remove it. Its lock is held, and nothing uses it: the caller has asked."""
        self._drop(template.volume)
        LOG.info("removed template %s of image %s", template.volume, template.image)

    def _resume(self, _name: str) -> Template | None:
        """What comes of what an interrupted attempt left. The template's lock is held."""
        return None

    @abstractmethod
    def _prepare(self, image: Image, format: DiskFormat, progress: Progress) -> Template:
        """Make it, its record last. The template's lock is held."""

    @abstractmethod
    def _drop(self, name: str) -> None:
        """Remove it, its record first. The template's lock is held."""


def find_handler(entry_points: str, name: str) -> type[BaseTemplateImagehandler]:
    kind = _load(entry_points, name)
    if not (isinstance(kind, type) and issubclass(kind, BaseTemplateImagehandler)):
        raise _unusable(name, "is no BaseTemplateImagehandler")
    return kind


def _load(entry_points: str, name: str) -> Any:
    try:
        manager: Any = stevedore.DriverManager(entry_points, name)
    except NoUniqueMatch as error:
        raise _unusable(name, "is there more than once") from error
    except Exception as error:  # whatever somebody else's module raises when it is imported
        raise _unusable(name, f"cannot be loaded ({type(error).__name__}: {error})") from error
    return manager.driver


def _unusable(name: str, reason: str) -> BadOption:
    advised = "repair or remove the plug-in; docs/plugins.md says what it must be"
    return BadOption("[DEFAULT] template_image_handler", f"handler {name!r} {reason}", advised)
