"""Templates that are not copied: an image that is a volume of Cinder's, or lies in Ceph, is read
where it is; anything else is downloaded."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from millpond.errors import MillpondError, NotFound, NotLinkable, VolumeNotConnected
from millpond.images.formats.inspection import Inspection
from millpond.images.source import ImageSource
from millpond.model.callbacks import Progress, noop
from millpond.model.cloud import LinkAccess
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import template_name
from millpond.model.template import Link, Prepared, Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.system import qemu_img
from millpond.templates.downloading import DownloadingTemplateImagehandler, refuse_larger_disk
from millpond.templates.handler import HandlerContext, LinkPreview
from millpond.templates.links.targets import LinkTarget, LinkTargets
from millpond.templates.publication import WorkspaceJournal
from millpond.templates.store import new_record

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """A template on its way to be a link."""

    image: Image
    format: DiskFormat
    location: str
    target: LinkTarget
    link: Link | None = None

    @property
    def name(self) -> str:
        return template_name(self.image.id, self.format)

    def make_record(self, pool: str) -> Template:
        return new_record(
            self.name,
            self.image,
            pool=pool,
            prepared=Prepared.LINK,
            size=self.image.size,
            virtual_size=self.image.virtual_size,
            format=self.format,
            link=self.link,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlinking:
    """A linked template on its way out."""

    name: str
    target: LinkTarget


class VolumeLinkingTemplateImagehandler(DownloadingTemplateImagehandler):
    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._link_access = context.link_access

    @cached_property
    def _targets(self) -> LinkTargets:
        assert self._link_access  # whoever starts us says by whom to link
        return LinkTargets(self._link_access())

    def init(self) -> None:
        """Undo what was interrupted; make dangling links again, or remove them."""
        super().init()
        for template in list(self._store.all()):
            if template.link and not template.streams:
                with self._store.lock(template.volume):
                    self._relink(template.volume)

    def fetch_image(self, image: Image, format: DiskFormat, progress: Progress = noop) -> Template:
        return self.reach(super().fetch_image(image, format, progress))

    def reach(self, template: Template) -> Template:
        if not template.link or template.streams:
            return template
        if self._targets.at(template.link.location).is_reachable(template.link):
            return template
        with self._store.lock(template.volume):
            self._relink(template.volume, insist=True)
        return self._store.find(template.volume) or template

    def is_dangling(self, template: Template) -> bool:
        if template.link is None or template.streams:
            return False
        target = self._targets.at(template.link.location)
        return not (target.has(template.link) and target.is_reachable(template.link))

    @classmethod
    def preview_link(
        cls, images: ImageSource, links: LinkAccess, image: Image, format: DiskFormat
    ) -> LinkPreview:
        try:
            location, target = _linkable(
                images.locations(image), LinkTargets(links), image, format
            )
            target.look(image.id)
        except NotLinkable as error:
            return LinkPreview(not_linked=error.reason)
        except MillpondError as error:
            return LinkPreview(not_linked=str(error))
        return LinkPreview(location=location)

    def linking(self) -> Verb[Linking]:
        return Verb(
            "link",
            (
                Step("look", as_step(lambda wanted: wanted.target.look(wanted.image.id))),
                Step("attach", self._attach, self._detach),
                Step("inspect", as_step(self._inspect_wanted)),
                Step("enter", self._enter),
                Step("record", as_step(self._record)),
            ),
            finished=noop,
            undone=noop,
        )

    def unlinking(self) -> Verb[Unlinking]:
        return Verb(
            "unlink",
            (
                Step("record", as_step(lambda going: self._store.forget(going.name))),
                Step("detach", as_step(self._detach)),
            ),
            finished=noop,
            undone=noop,
            resumes=True,
        )

    def _prepare(self, image: Image, format: DiskFormat, progress: Progress) -> Template:
        name = template_name(image.id, format)
        self._cleanup_strays(name)
        try:
            location, target = self._linkable(image, format)
            wanted = Linking(image=image, format=format, location=location, target=target)
            journal.run(self.linking(), wanted, WorkspaceJournal(self._store), self._watch)
        except (NotLinkable, VolumeNotConnected) as error:
            why = error.reason if isinstance(error, NotLinkable) else error
            LOG.warning("image %s is downloaded, not linked: %s", image.name, why)
            self._cleanup_strays(name)  # what could not be undone
            return super()._prepare(image, format, progress)
        LOG.info("linked template %s of image %s to %s", name, image.id, location)
        progress(image.size)
        template = self._store.find(name)
        assert template is not None  # its record was just written, and the lock is held
        return template

    def _drop(self, name: str) -> None:
        template = self._store.find(name)
        if template is None or template.link is None:
            super()._drop(name)
            return
        target = self._targets.at(template.link.location)
        target.has(template.link)  # if nobody answers there, nothing is begun
        self._note(name, template.link.location, template.link.attachment)
        going = Unlinking(name=name, target=target)
        journal.run(self.unlinking(), going, WorkspaceJournal(self._store), self._watch)

    def _cleanup(self, name: str) -> None:
        self._cleanup_strays(name)
        super()._cleanup(name)

    def _resume(self, name: str) -> Template | None:
        self._cleanup_strays(name)
        return super()._resume(name)

    def _linkable(self, image: Image, format: DiskFormat) -> tuple[str, LinkTarget]:
        if self._store.has(template_name(image.id, format)):
            raise NotLinkable("a file of it is in the cache")
        return _linkable(self._images.locations(image), self._targets, image, format)

    def _attach(self, wanted: Linking) -> Linking:
        return replace(wanted, link=self._link(wanted.name, wanted.location, wanted.target))

    def _link(self, name: str, location: str, target: LinkTarget) -> Link:
        self._note(name, location)
        return target.link(name, lambda held: self._note(name, location, held))

    def _detach(self, held: Linking | Unlinking) -> None:
        listed = (self._store.cache / held.name).is_symlink()
        self._cleanup_strays(held.name)
        if listed:
            self._store.pool.refresh()

    def _enter(self, wanted: Linking) -> Linking:
        assert wanted.link is not None  # attach made it
        link = wanted.target.enter(wanted.name, wanted.link)
        if link.file:
            self._store.pool.refresh()
        return replace(wanted, link=link)

    def _inspect_wanted(self, wanted: Linking) -> None:
        self._inspect(wanted.make_record(self._store.pool.name), wanted.image)

    def _inspect(self, template: Template, image: Image) -> None:
        """As strictly as what is downloaded, but only what must be seen is read (B46). It proves
        nothing of what is read later: that is raw bytes to whoever reads it."""
        layer = template.linked_layer
        assert layer is not None  # the template is a link
        window = self._store.workspace(template.volume) / "seen"

        def read(offset: int, length: int) -> bytes:
            return qemu_img.read(layer, offset, length, window)

        finding = Inspection(image.format, image.name).look_at(read, image.size)
        refuse_larger_disk(image, finding.virtual_size)

    def _record(self, wanted: Linking) -> None:
        self._store.put(wanted.make_record(self._store.pool.name))

    def _relink(self, name: str, *, insist: bool = False) -> None:
        """One whose target does not answer now stays as it is."""
        template = self._store.find(name)
        if template is None or template.link is None:
            return
        try:
            self._link_again(template, template.link)
        except MillpondError as error:
            if insist:
                raise
            if isinstance(error, NotFound | NotLinkable):
                self._remove_lost(template, error)
            else:
                LOG.warning("whether template %s is still linked is not known: %s", name, error)

    def _link_again(self, template: Template, link: Link) -> None:
        name, target = template.volume, self._targets.at(link.location)
        if target.has(link) and target.is_reachable(link):
            return
        if target.has(link):
            again = target.connect(name, link)
        else:
            target.look(template.image)
            again = self._link(name, link.location, target)
        self._inspect(replace(template, link=again), self._images.describe(template.image))
        self._store.put(replace(template, link=target.enter(name, again)))
        self._store.discard_workspace(name)
        LOG.info("linked template %s again", name)

    def _remove_lost(self, template: Template, reason: MillpondError) -> None:
        if users := self._users(template.volume):
            LOG.error("template %s, which %s use, is lost: %s", template.volume, users, reason)
            return
        try:
            self._drop(template.volume)
        except MillpondError as error:
            LOG.warning("the link of template %s is not dropped: %s", template.volume, error)
            return
        LOG.info("dropped the link of template %s: %s", template.volume, reason)

    def _cleanup_strays(self, name: str) -> None:
        """Release what an interrupted attempt holds, except what the template's record names."""
        for location, held in self._read_location(name):
            template = self._store.find(name)
            link = template.link if template else None
            if link and (link.location, link.attachment) == (location, held):
                continue  # killed when all was done
            self._targets.at(location).unlink(name, held, link.attachment if link else "")

    def _note(self, name: str, location: str, held: str = "") -> None:
        """So that whoever comes after a crash knows where we may hold what."""
        note = f"{location}\n{held}"
        self._store.write(self._store.workspace(name) / "location", note.encode())

    def _read_location(self, name: str) -> Iterator[tuple[str, str]]:
        path = self._store.incoming(name) / "location"
        if path.exists():
            location, _, held = path.read_text().partition("\n")
            yield location, held


def _linkable(
    locations: Sequence[str], targets: LinkTargets, image: Image, format: DiskFormat
) -> tuple[str, LinkTarget]:
    """The first location that can be linked, by what is known without asking there. Raw bytes
    alone: any other format can name files of the host, and who has the volume could write one
    there long after it was inspected."""
    if image.format.content is not DiskFormat.RAW:
        raise NotLinkable(f"it is {image.format}, and only raw bytes are linked")
    if format is not DiskFormat.RAW:
        raise NotLinkable(f"it is {image.format}, and disks are made from {format} here")
    reasons = []
    for location in locations:
        try:
            return location, targets.at(location)
        except NotLinkable as error:
            reasons.append(error.reason)
    raise NotLinkable("; ".join(reasons) or "its source does not say where it lies")
