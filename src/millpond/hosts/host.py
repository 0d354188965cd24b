"""One host, as a record of its collaborators. It has no verbs, and decides nothing."""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

from millpond.config import LOCAL, HostSettings, VirtTypeOption
from millpond.disks.backend import ImageBackend
from millpond.disks.disks import Disks
from millpond.disks.imaging import Imaging
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.rbd_storage import RbdStorage
from millpond.errors import MillpondError
from millpond.hosts.handlers import TemplateHandlers
from millpond.hosts.pool_plan import plan_pools
from millpond.hosts.shared import Shared
from millpond.hosts.streams import stream_access
from millpond.images.source import Library
from millpond.legacy.bases import NovaBases
from millpond.legacy.image_files import ImageCache
from millpond.legacy.layout import NovaLayout
from millpond.legacy.storage import LegacyStorage
from millpond.libvirt import virtualization
from millpond.libvirt.block_jobs import BlockJobs
from millpond.libvirt.cdroms import Cdroms
from millpond.libvirt.domain_disks import DomainDisks
from millpond.libvirt.domains import (
    Autostart,
    ConsoleFiles,
    Consoles,
    ConsoleVolumes,
    DomainRecords,
    Domains,
)
from millpond.libvirt.networks import Networks
from millpond.libvirt.pool import Pool
from millpond.libvirt.pools import PoolPlan, Pools
from millpond.model.callbacks import noop
from millpond.model.cloud import LinkAccess
from millpond.model.formats import Backend
from millpond.model.server import Hardware, VirtType
from millpond.model.stream import StreamAccess
from millpond.records.journal import Watch
from millpond.records.records import Records, RecordsOfHosts
from millpond.scheduling.claims import Claims
from millpond.system.iscsi import initiator_name
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks, Slots
from millpond.templates.blank import BlankTemplates
from millpond.templates.cache_manager import ImageCacheManager, UsageLeases
from millpond.templates.handler import HandlerContext
from millpond.templates.publication import Publication
from millpond.templates.remote import RemoteTemplates, claim
from millpond.templates.scrub import Scrub
from millpond.templates.store import LocalTemplates, TemplateStore
from millpond.templates.uses import TemplateUses, Use
from millpond.templates.verdicts import Rules


class Host:
    """Each collaborator is made when it is first asked for: listing servers touches no pool. One
    that is assigned before stands in for it, and for all that is made of it."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        watch: Watch = noop,
        claims: Claims | None = None,
    ) -> None:
        self.name = name
        self.shared = shared
        self.settings: HostSettings = shared.settings.hosts[name]
        self.watch = watch
        self.claims = claims
        """None where nothing is scheduled."""
        self.directory = shared.settings.state_path / "hosts" / name
        """Of this host's, on this machine."""
        self.locks = shared.locks if name == LOCAL else Locks(self.directory / "locks")

    @cached_property
    def records(self) -> Records:
        """Of this host's servers."""
        return self.shared.records_of(self.name)

    @property
    def images(self) -> Library:
        return self.shared.images

    @cached_property
    def libvirtd(self) -> Libvirtd:
        libvirt = self.settings.libvirt
        return Libvirtd(libvirt.connection_uri, patience=libvirt.connection_timeout)

    @cached_property
    def pools(self) -> Pools:
        clearing = self.settings.libvirt.clearing
        return Pools(self.libvirtd, self.pool_plan, self.locks, clearing)

    def probe_local_files(self) -> bool:
        """Whether the host's files are local: those of its pools, which are made where they are
        missing, answer for all that lie in no pool. One of the two may be shared with a host that
        is remote."""
        plan = self.pool_plan
        return all(self.pools.ensure(each.name).local for each in (plan.base, plan.disks))

    @property
    def seems_local(self) -> bool:
        """The same, but no pool is made for it. Where there is no pool to probe, or none that can
        be used, the host's address decides."""
        for pool in (self.pool_plan.base, self.pool_plan.disks):
            with suppress(MillpondError):
                return self.pools.open(pool.name).local
        return not urlsplit(self.settings.libvirt.connection_uri).hostname

    @cached_property
    def consoles(self) -> Consoles:
        if self.probe_local_files():
            return ConsoleFiles(self.shared.settings.instances_path)
        return ConsoleVolumes(lambda: self.pools.consoles)

    @cached_property
    def pool_plan(self) -> PoolPlan:
        return plan_pools(self.settings.libvirt)

    @cached_property
    def domains(self) -> Domains:
        return Domains(self.libvirtd)

    @cached_property
    def networks(self) -> Networks:
        return Networks(self.libvirtd, self.name)

    @cached_property
    def domain_disks(self) -> DomainDisks:
        return DomainDisks(self.libvirtd)

    @cached_property
    def cdroms(self) -> Cdroms:
        return Cdroms(self.libvirtd)

    @cached_property
    def autostart(self) -> Autostart:
        return Autostart(self.libvirtd)

    @cached_property
    def domain_records(self) -> DomainRecords:
        return DomainRecords(self.libvirtd)

    @cached_property
    def template_store(self) -> TemplateStore:
        """Its pool is made if it is missing."""
        base = self.pools.base
        if base.local:
            return LocalTemplates(base)
        claim(self.pools.records, self.records.owner, self.name)
        return RemoteTemplates(base, self.pools.records, self._template_sidecar)

    def find_template_store(self) -> TemplateStore | None:
        """None where no template was ever made: no pool is made to look for one."""
        base = Path(self.pool_plan.base.path)
        is_there = base.is_dir() or self._template_sidecar.is_dir()
        return self.template_store if is_there else None

    @property
    def _template_sidecar(self) -> Path:
        """On this machine, of a cache on a remote host."""
        return self.directory / "templates"

    @cached_property
    def leases(self) -> UsageLeases:
        term = timedelta(seconds=self.shared.settings.image_cache.host_lease_seconds)
        return UsageLeases(self.template_store, lambda: self.records.owner, term)

    @cached_property
    def handlers(self) -> TemplateHandlers:
        bases = self.nova_bases
        context = HandlerContext(
            store=self.template_store,
            images=self.images,
            users=self.template_uses.users,
            watch=self.watch,
            note_use=self.leases.note,
            make_room=self._make_room,
            adopt_image=bases.adopt_image if bases else noop,
            link_access=lambda: self.link_access,
            stream_access=lambda: self.stream_access,
        )
        wanted = self.shared.settings.template_image_handler
        return TemplateHandlers(wanted, context, lambda: self.blanks, self.cluster)

    @cached_property
    def link_access(self) -> LinkAccess:
        settings, name = self.shared.settings, socket.gethostname()
        return LinkAccess(
            host=name,
            initiator=initiator_name(name),
            owner=lambda: self.records.owner + ("" if self.name == LOCAL else f".{self.name}"),
            cinder=settings.cinder,
            ceph=self.pool_plan.ceph,
            bases=Path(self.pool_plan.base.path),
            state=settings.state_path,
            reader=self._qemu_uid,
            image_volume_project=settings.image_volume_project_id,
            own_process=settings.own_process,
        )

    @cached_property
    def stream_access(self) -> StreamAccess:
        selection = self.settings.libvirt.selection
        return stream_access(self.shared.settings, self.name, selection, self._qemu_uid)

    def _qemu_uid(self) -> int:
        user = virtualization.qemu_user(self.libvirtd)
        return user.uid if user else 0

    @cached_property
    def blanks(self) -> BlankTemplates:
        return BlankTemplates(
            self.template_store,
            self.shared.settings.default_ephemeral_format,
            self.template_uses.users,
            self.watch,
            self.leases.note,
            self._make_room,
            self.nova_bases.adopt_swap if self.nova_bases else noop,
        )

    @cached_property
    def nova_bases(self) -> NovaBases | None:
        """None where files are remote, or the operator says that no legacy disk is left: then
        nobody would look for disks that are backed by one."""
        if self.settings.libvirt.selection.images_type.pools_only or not self.template_store.local:
            return None
        return NovaBases(self.template_store)

    @cached_property
    def cache_manager(self) -> ImageCacheManager:
        return ImageCacheManager(
            self.template_store,
            self.leases,
            self.images,
            find_uses=self.template_uses.all,
            find_promised=self.template_uses.promised,
            remove=self.handlers.remove,
            cleanup=self.handlers.cleanup,
        )

    @property
    def cache_rules(self) -> Rules:
        cache = self.shared.settings.image_cache
        return Rules(
            removes_unused=cache.remove_unused_base_images,
            minimum_age=timedelta(seconds=cache.remove_unused_original_minimum_age_seconds),
            max_bytes=cache.max_bytes,
        )

    def _make_room(self, needed: int) -> None:
        self.cache_manager.make_room(self.cache_rules, needed)

    @cached_property
    def scrub(self) -> Scrub:
        users = self.template_uses.users
        publication = Publication(self.template_store, users, self.watch)
        return Scrub(self.template_store, publication, users, self.handlers.renew)

    @cached_property
    def template_uses(self) -> TemplateUses:
        """A template stays on all hosts whose cache is at the same place: they may share it."""
        place = self.settings.libvirt.pools.base_images.path
        hosts = self.shared.settings.hosts.items()
        others = {name for name, each in hosts if each.libvirt.pools.base_images.path != place}
        records = RecordsOfHosts(self.shared.records, lambda host: host not in others)
        return TemplateUses(
            records=records,
            find_chains=lambda: self.domain_disks.chains(),
            open_pool=self.pools.open,
            base=self.pool_plan.base,
            find_legacy_uses=self._legacy_uses,
            find_store=self.find_template_store,
            hosts_using=lambda template: self.leases.hosts_using(template),
        )

    def _legacy_uses(self) -> tuple[list[Use], tuple[str, ...]]:
        """Only files are looked for, and not where the operator says that none is left."""
        if self.settings.libvirt.selection.images_type.pools_only or not self.probe_local_files():
            return [], ()
        return self.nova_layout({}).uses()

    def nova_layout(self, volumes: Mapping[Backend, Pool]) -> NovaLayout:
        """Where Nova keeps disks: files, and volumes of these pools."""
        plan = self.pool_plan
        return NovaLayout(
            instances=self.shared.settings.instances_path,
            cache=ImageCache(path=Path(plan.base.path), pool=plan.base.name),
            usual=self.settings.libvirt.selection.blank_backend().disk_format,
            pools=tuple(Path(each.path) for each in plan.directories() if each != plan.base),
            volumes=volumes,
        )

    @cached_property
    def rbd_storage(self) -> RbdStorage:
        return RbdStorage(
            self.pools,
            owner=lambda: self.records.owner,
            locks=self.shared.locks,
            incoming=self.directory / "ceph",
        )

    @property
    def cluster(self) -> RbdStorage | None:
        """Where templates are uploaded to, too."""
        return self.rbd_storage if self.settings.libvirt.rbd else None

    def storage(self, backend: Backend) -> ImageBackend:
        if backend is Backend.RBD:
            return self.rbd_storage
        return LibvirtStorage(backend, self.pools, find_linked=self.handlers.find_linked)

    @cached_property
    def disks(self) -> Disks:
        """Its pools are looked at, and made where they are missing."""
        return Disks(
            storage=self.storage,
            legacy_storage=lambda: self.legacy_storage,
            selection=self.settings.libvirt.selection,
            images=self.images,
            templates=self.handlers.chosen,
            blanks=lambda: self.blanks,
            base_pool=self.pool_plan.base.name,
            locks=self.locks,
            watch=self.watch,
        )

    @cached_property
    def imaging(self) -> Imaging:
        return Imaging(self.disks, self.domains, self.domain_disks, self.block_jobs, self.watch)

    @cached_property
    def block_jobs(self) -> BlockJobs:
        return BlockJobs(self.libvirtd)

    @cached_property
    def legacy_storage(self) -> LegacyStorage:
        """Of disks that lie in no pool."""
        return LegacyStorage(Path(self.pool_plan.base.path))

    @cached_property
    def starts(self) -> Slots:
        """How many guests may be starting at a time: more only slow each other down."""
        return Slots(self.locks, "start", max(1, (os.cpu_count() or 1) - 1))

    def choose_virt_type(self) -> VirtType:
        """Asked only when a server is made: finding out costs a call."""
        wanted = self.settings.libvirt.virt_type
        if wanted in (VirtTypeOption.KVM, VirtTypeOption.QEMU):
            return VirtType(wanted.value)
        return virtualization.choose(self.libvirtd, local=self.probe_local_files())

    def limits(self, hardware: Hardware) -> virtualization.Limits:
        return virtualization.limits(self.libvirtd, hardware.virt_type, hardware.machine)

    @cached_property
    def full_machine_name(self) -> Callable[[VirtType, str], str]:
        return cache(partial(virtualization.full_machine_name, self.libvirtd))
