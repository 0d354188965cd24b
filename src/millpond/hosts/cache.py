"""The parts of a host's image cache: the wiring, once, for every program."""

import logging
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from millpond.config import HANDLERS, HostSettings, Settings
from millpond.disks.rbd_storage import RbdStorage, is_complete
from millpond.errors import (
    ImageNotFound,
    PoolNotFound,
    PoolOfAnotherType,
    TemplateInUse,
    TemplateNotFound,
)
from millpond.images.source import Library
from millpond.legacy.bases import NovaBases
from millpond.libvirt.pools import Pools
from millpond.model.cloud import LinkAccess
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.layer import CephAccess, Layer
from millpond.model.names import ImageId, split_volume_name, template_name
from millpond.model.template import Template
from millpond.model.volume import Volume
from millpond.records.journal import Watch, nothing
from millpond.records.records import Records
from millpond.system.iscsi import initiator_name
from millpond.templates.blank import BlankTemplates
from millpond.templates.cache_manager import ImageCacheManager, UsageLeases
from millpond.templates.handler import (
    BaseTemplateImagehandler,
    HandlerContext,
    LinkPreview,
    find_handler,
)
from millpond.templates.publication import Publication
from millpond.templates.remote import RemoteTemplates, claim
from millpond.templates.scrub import Scrub
from millpond.templates.store import LocalTemplates, TemplateStore
from millpond.templates.uses import TemplateUses
from millpond.templates.verdicts import Rules, Verdict

LOG = logging.getLogger(__name__)

LINKING = "volume-based-linking"
DOWNLOADING = "downloading"
_NOT_LINKED = "the files of the host cannot be opened here"


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Everything is made when it is first asked for."""

    settings: HostSettings
    common: Settings
    records: Records
    images: Library
    pools: Pools
    uses: TemplateUses
    cluster: RbdStorage | None
    """Where templates are brought into a Ceph cluster, too."""
    watch: Watch
    reader: Callable[[], int]
    """QEMU's user."""
    host: str
    """Its name."""
    sidecar: Path
    """On this machine, of a cache on a remote host."""

    @cached_property
    def store(self) -> TemplateStore:
        base = self.pools.base
        if base.local:
            return LocalTemplates(base)
        claim(self.pools.records, self.records.owner, self.host)
        return RemoteTemplates(base, self.pools.records, self.sidecar)

    @cached_property
    def templates(self) -> BaseTemplateImagehandler:
        if not self.store.local and issubclass(self._handler, find_handler(HANDLERS, LINKING)):
            LOG.warning("images are not linked: %s", _NOT_LINKED)
            return find_handler(HANDLERS, DOWNLOADING)(self._context)
        return self._handler(self._context)

    @cached_property
    def links(self) -> BaseTemplateImagehandler:
        """Of templates that are links, whatever handler is chosen for new ones."""
        kind = find_handler(HANDLERS, LINKING)
        return self.templates if isinstance(self.templates, kind) else kind(self._context)

    @cached_property
    def _context(self) -> HandlerContext:
        return HandlerContext(
            store=self.store,
            images=self.images,
            users=self.users,
            watch=self.watch,
            note_use=self.leases.note,
            make_room=self._make_room,
            adopt_image=self.bases.adopt_image if self.bases else nothing,
            links=self._link_access(),
        )

    @cached_property
    def blanks(self) -> BlankTemplates:
        return BlankTemplates(
            self.store,
            self.common.default_ephemeral_format,
            self.users,
            self.watch,
            self.leases.note,
            self._make_room,
            self.bases.adopt_swap if self.bases else nothing,
        )

    @cached_property
    def bases(self) -> NovaBases | None:
        """None where files are remote, or the operator says that no legacy disk is left: then
        nobody would look for disks that are backed by one."""
        pools_only = self.settings.libvirt.selection.images_type.pools_only
        return None if pools_only or not self.store.local else NovaBases(self.store)

    def prune_bases(self, needed: Collection[str]) -> list[str]:
        """Of Nova's own driver, by Nova's rules; the names of what went."""
        if self.bases is None:
            return []
        return self.bases.prune(self.rules, needed, self.uses.all, self.leases.hosts_using)

    @cached_property
    def leases(self) -> UsageLeases:
        term = timedelta(seconds=self.common.image_cache.host_lease_seconds)
        return UsageLeases(self.store, lambda: self.records.owner, term)

    @cached_property
    def manager(self) -> ImageCacheManager:
        return ImageCacheManager(
            self.store,
            self.leases,
            self.images,
            find_uses=self.uses.all,
            find_promised=self.uses.promised,
            remove=self._remove,
            cleanup=self.cleanup,
        )

    @cached_property
    def scrub(self) -> Scrub:
        publication = Publication(self.store, self.users, self.watch)
        return Scrub(self.store, publication, self.users, self._renew)

    @property
    def rules(self) -> Rules:
        cache = self.common.image_cache
        return Rules(
            removes_unused=cache.remove_unused_base_images,
            minimum_age=timedelta(seconds=cache.remove_unused_original_minimum_age_seconds),
            max_bytes=cache.max_bytes,
        )

    def all(self) -> Iterator[Template]:
        """Where none was ever made, no pool is made to look for them."""
        return self.store.all() if self._is_there else iter(())

    def survey(self, rules: Rules) -> list[Verdict]:
        """What would become of each template. Nothing is changed, and no pool is made."""
        return self.manager.survey(rules) if self._is_there else []

    def named(self, name: str) -> list[Template]:
        """The one of this name, or all of an image. Raises TemplateNotFound."""
        id = self._image_id(name)
        found = [
            each
            for each in self.all()
            if each.volume == name or (each.image and each.image in (name, id))
        ]
        if not found:
            raise TemplateNotFound(name)
        return found

    def cleanup(self) -> None:
        """Finish or undo what was interrupted, and look after what is linked."""
        self.templates.init()
        if any(each.link for each in self.all()) and self.links is not self.templates:
            self.links.init()

    def in_cluster(self) -> list[Volume]:
        """Templates of all hosts that share it."""
        if not (access := self._ceph()):
            return []
        pool = self.pools.for_disk(Backend.RBD)
        pool.refresh()
        others = [each for each in pool.volumes() if not split_volume_name(each.name)]
        return [each for each in others if is_complete(access, each.name)]

    def has(self, image: ImageId, format: DiskFormat, backend: Backend) -> bool:
        """Whether what disks are made from is there."""
        name = template_name(image, format)
        found = self.store.find(name) if self._is_there else None
        if backend is not Backend.RBD:
            return found is not None
        if found and found.link:
            return True  # in the same cluster disks are cloned from what it leads to
        access = self._ceph()
        return bool(access and is_complete(access, name))

    def opened_store(self) -> TemplateStore | None:
        """The templates as they are; None where there is no base pool yet, or another one of its
        name, which doctor tells of. No pool is made."""
        try:
            self.pools.opened(self.pools.plan.base.name)
        except (PoolNotFound, PoolOfAnotherType):
            return None
        return self.store

    def preview_link(self, image: Image, format: DiskFormat) -> LinkPreview:
        """How a template would be prepared."""
        if self._is_there and not self.store.local:
            return LinkPreview(not_linked=_NOT_LINKED)
        return self._handler.preview_link(self.images, self._link_access(), image, format)

    def users(self, template: str) -> tuple[str, ...]:
        """Whoever uses a template, ours or not: records, domains, volumes and legacy disks of
        this host, and other hosts that share the cache. Nothing is removed without asking."""
        return self.uses.all().of(template) + self.leases.hosts_using(template)

    def remove_image(self, image: Image) -> None:
        """Remove the templates of an image, if nothing uses any; those in the cluster first, which
        can fail."""
        going = [each for each in self.all() if each.image == image.id]
        for template in going:
            if users := self.users(template.volume):
                raise TemplateInUse(template.volume, users)
        for format in DiskFormat:
            self._remove_from_cluster(template_name(image.id, format))
        for template in going:
            self._remove_link_snapshot(template)
            self._handler_of(template).remove_image(image.id, template.format)
            self.leases.unpin(template.volume)

    def links_by_name(self) -> Mapping[str, str]:
        """Templates by what they lead to in the network, as a domain names it."""
        linked = [(each, each.link.rbd or each.link.iscsi) for each in self.all() if each.link]
        return {source.place: each.volume for each, source in linked if source}

    def linked(self, template: str) -> Layer | None:
        """Where a template's bytes are, if it is a link."""
        found = self.store.find(template)
        if not found or not found.link:
            return None
        return self.links.reach(found).linked_layer

    def _link_access(self) -> LinkAccess:
        host = socket.gethostname()
        return LinkAccess(
            host=host,
            initiator=initiator_name(host),
            owner=lambda: self.records.owner,
            cinder=self.common.cinder,
            ceph=self._ceph(),
            bases=Path(self.pools.plan.base.path),
            state=self.common.state_path,
            reader=self.reader,
            image_volume_project=self.common.image_volume_project_id,
            own_process=self.common.own_process,
        )

    @cached_property
    def _handler(self) -> type[BaseTemplateImagehandler]:
        return find_handler(HANDLERS, self.common.template_image_handler)

    def _make_room(self, needed: int) -> None:
        self.manager.make_room(self.rules, needed)

    def _remove(self, template: Template) -> None:
        """Its lock is held. In a Ceph cluster it goes first, while its name is known here, unless
        disks of other hosts stand on it."""
        self._remove_from_cluster(template.volume)
        self._remove_link_snapshot(template)
        if template.link or template.image:
            self._handler_of(template).drop(template)
        else:
            self.blanks.remove(template)

    def _handler_of(self, template: Template) -> BaseTemplateImagehandler:
        return self.links if template.link else self.templates

    def _remove_from_cluster(self, template: str) -> None:
        if self.cluster:
            self.cluster.remove_template(template)

    def _remove_link_snapshot(self, template: Template) -> None:
        if self.cluster:
            self.cluster.remove_link_snapshot(template)

    def _ceph(self) -> CephAccess | None:
        wanted = self.pools.plan.by_backend.get(Backend.RBD)
        return wanted.ceph if wanted else None

    def _renew(self, template: Template) -> Template:
        return self.templates.renew_image(self.images.describe(template.image), template.format)

    def _image_id(self, name: str) -> ImageId | None:
        with suppress(ImageNotFound):
            return self.images.get(name).id
        return None

    @property
    def _is_there(self) -> bool:
        return Path(self.pools.plan.base.path).is_dir() or self.sidecar.is_dir()
