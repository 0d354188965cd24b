"""From the settings of one host to its parts: the wiring, once, for every program."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from millpond.cache import Cache
from millpond.commons import Commons
from millpond.config import LOCAL, HostSettings, VirtTypeOption
from millpond.disks import image_types, space
from millpond.disks.backend import ImageBackend
from millpond.disks.disks import Disks
from millpond.disks.imaging import Imaging
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.rbd_storage import RbdStorage
from millpond.errors import MillpondError, NeedsHostFiles, PoolNotFound
from millpond.images.catalogue import Catalogue
from millpond.images.source import Library
from millpond.legacy.image_files import ImageCache
from millpond.legacy.layout import NovaLayout
from millpond.legacy.storage import LegacyStorage
from millpond.libvirt import virtualization
from millpond.libvirt.block_jobs import BlockJobs
from millpond.libvirt.consoles import ConsoleFiles, Consoles, ConsoleVolumes
from millpond.libvirt.domains import Domains
from millpond.libvirt.ensure import PoolWanted
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.pool import Pool, PoolType
from millpond.libvirt.pools import PoolPlan, Pools
from millpond.model.formats import Backend, ImageFormat
from millpond.model.layer import CephAccess
from millpond.model.server import VirtType
from millpond.model.volume import PoolUsage
from millpond.records.journal import Watch, unwatched
from millpond.records.of_hosts import RecordsOfHosts
from millpond.records.records import Records
from millpond.scheduling.claims import Claims, Unclaimed
from millpond.servers.host import Host
from millpond.system import ceph_conf
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks, Slots
from millpond.templates.uses import TemplateUses, Use


class Engine:
    """Of one host. Everything is made when it is first asked for: listing servers touches no
    pool."""

    def __init__(
        self,
        name: str,
        commons: Commons,
        watch: Watch = unwatched,
        claims: Claims | None = None,
    ) -> None:
        self.name = name
        self.commons = commons
        self.settings: HostSettings = commons.settings.hosts[name]
        self._watch = watch
        self._claims = claims or Unclaimed()
        self._locks = self.commons.locks
        if self.name != LOCAL:
            self._locks = Locks(self._own_directory / "locks")

    @cached_property
    def records(self) -> Records:
        """Of this host's servers."""
        return self.commons.records_of(self.name)

    @property
    def _own_directory(self) -> Path:
        """Of this host's, here."""
        return self.commons.settings.state_path / "hosts" / self.name

    @property
    def images(self) -> Library:
        return self.commons.images

    @property
    def catalogue(self) -> Catalogue:
        return self.commons.catalogue

    @cached_property
    def libvirtd(self) -> Libvirtd:
        libvirt = self.settings.libvirt
        return Libvirtd(libvirt.connection_uri, patience=libvirt.connection_timeout)

    @cached_property
    def pools(self) -> Pools:
        clearing = self.settings.libvirt.clearing
        return Pools(self.libvirtd, self.pool_plan, self._locks, clearing)

    def probe_local_files(self) -> bool:
        """Whether the host's files are local: those of its pools, which are made where they are
        missing, answer for all that lie in no pool. One of the two may be shared with a host that
        is remote."""
        plan = self.pool_plan
        return all(self.pools.named(each.name).local for each in (plan.base, plan.disks))

    @property
    def seems_local(self) -> bool:
        """The same, but no pool is made for it. Where there is no pool to probe, or none that can
        be used, the host's address decides."""
        for pool in (self.pool_plan.base, self.pool_plan.disks):
            with suppress(MillpondError):
                return self.pools.opened(pool.name).local
        return not urlsplit(self.settings.libvirt.connection_uri).hostname

    @cached_property
    def consoles(self) -> Consoles:
        if self.probe_local_files():
            return ConsoleFiles(self.commons.settings.instances_path)
        return ConsoleVolumes(lambda: self.pools.consoles)

    @cached_property
    def pool_plan(self) -> PoolPlan:
        pools = self.settings.libvirt.pools
        own = {Backend.LVM: self._lvm_pool(), Backend.RBD: self._rbd_pool()}
        return PoolPlan(
            base=PoolWanted(name=pools.base_images.name, path=str(pools.base_images.path)),
            disks=PoolWanted(name=pools.disks.name, path=str(pools.disks.path)),
            by_role={
                role: PoolWanted(name=pool.name, path=str(pool.path))
                for role, pool in pools.by_disk_name.items()
            },
            by_backend={backend: each for backend, each in own.items() if each},
        )

    def _lvm_pool(self) -> PoolWanted | None:
        group = self.settings.libvirt.volume_group
        name = self.settings.libvirt.pools.lvm
        wanted = PoolWanted(name=name, path=f"/dev/{group}", type=PoolType.LOGICAL, source=group)
        return wanted if group else None

    def _rbd_pool(self) -> PoolWanted | None:
        rbd = self.settings.libvirt.rbd
        if rbd is None:
            return None
        access = CephAccess(
            pool=rbd.pool,
            monitors=ceph_conf.monitors(rbd.ceph_conf),
            user=rbd.user,
            secret=rbd.secret_uuid,
            conf=rbd.ceph_conf,
        )
        name = self.settings.libvirt.pools.rbd
        return PoolWanted(name=name, path="", type=PoolType.RBD, ceph=access)

    @cached_property
    def domains(self) -> Domains:
        return Domains(self.libvirtd)

    @cached_property
    def cache(self) -> Cache:
        return Cache(
            settings=self.settings,
            common=self.commons.settings,
            records=self.records,
            images=self.images,
            pools=self.pools,
            uses=self.template_uses,
            cluster=self.rbd_storage if self.settings.libvirt.rbd else None,
            watch=self._watch,
            reader=self._qemu_uid,
            host=self.name,
            sidecar=self._own_directory / "templates",
        )

    def _qemu_uid(self) -> int:
        user = virtualization.qemu_user(self.libvirtd)
        return user.uid if user else 0

    @property
    def template_uses(self) -> TemplateUses:
        """A template that a host uses stays on all that have their cache at the same place: they
        may share it, and nobody has proven that they do not."""
        place = self.settings.libvirt.pools.base_images.path
        hosts = self.commons.settings.hosts.items()
        others = {name for name, each in hosts if each.libvirt.pools.base_images.path != place}
        records = RecordsOfHosts(self.commons.records, lambda host: host not in others)
        return TemplateUses(
            records=records,
            domains=self.domains,
            open_pool=self.pools.opened,
            base=self.pool_plan.base,
            find_legacy_uses=self._legacy_uses,
            find_links=lambda: self.cache.links_by_name(),
        )

    def _legacy_uses(self) -> tuple[list[Use], tuple[str, ...]]:
        """Legacy disks are only looked for as files, and not where the operator says that none is
        left."""
        if self.settings.libvirt.selection.images_type.pools_only or not self.probe_local_files():
            return [], ()
        return self.nova_layout().uses()

    @cached_property
    def rbd_storage(self) -> RbdStorage:
        return RbdStorage(
            self.pools,
            owner=lambda: self.records.owner,
            locks=self.commons.locks,
            incoming=self._own_directory / "ceph",
        )

    @cached_property
    def disks(self) -> Disks:
        """Its pools are looked at, and made where they are missing."""
        backends: dict[Backend, ImageBackend] = {
            each: LibvirtStorage(each, self.pools, linked=self.cache.linked)
            for each in (Backend.RAW, Backend.QCOW2, Backend.PLOOP, Backend.LVM)
        }
        backends[Backend.RBD] = self.rbd_storage
        return Disks(
            backends=backends,
            legacy=self.legacy_storage,
            selection=self.settings.libvirt.selection,
            images=self.images,
            templates=self.cache.templates,
            blanks=self.cache.blanks,
            base_pool=self.pool_plan.base.name,
            locks=self._locks,
            watch=self._watch,
        )

    @cached_property
    def imaging(self) -> Imaging:
        return Imaging(self.disks, self.domains, self._block_jobs, self._watch)

    @cached_property
    def _block_jobs(self) -> BlockJobs:
        return BlockJobs(self.libvirtd)

    @cached_property
    def host(self) -> Host:
        return Host(
            name=self.name,
            domains=self.domains,
            block_jobs=self._block_jobs,
            records=self.records,
            claims=self._claims,
            images=self.images,
            disks=self.disks,
            pools=self.pools,
            choose_virt_type=self._virt_type,
            find_consoles=lambda: self.consoles,
            starts=Slots(self._locks, "start", max(1, (os.cpu_count() or 1) - 1)),
            watch=self._watch,
        )

    @property
    def image_types(self) -> frozenset[ImageFormat]:
        """Of the images that this host takes."""
        return self.image_types_of("qemu")

    def image_types_of(self, hypervisor: str) -> frozenset[ImageFormat]:
        """The same, of a host that is really this."""
        compute, selection = self.settings.compute, self.settings.libvirt.selection
        is_asked = bool(selection.backends() & image_types.NEED_FILES)
        return image_types.taken(
            selection,
            compute.image_type_exclude_list,
            converted=compute.report_converted_image_types,
            hypervisor=self.hypervisor(hypervisor),
            local=not is_asked or self.seems_local,
        )

    def hypervisor(self, found: str) -> str:
        """What libvirt found, under the name that decides which images are taken."""
        is_vz = found == "vz" or self.settings.libvirt.virt_type is VirtTypeOption.PARALLELS
        return "parallels" if is_vz else found

    def pools_of_disks(self) -> set[str]:
        """All that new disks may come to."""
        return self.pool_plan.of_disks(self.settings.libvirt.selection.backends())

    def disk_space(self) -> PoolUsage:
        return space.space(self.pools, self.pools_of_disks())

    @cached_property
    def legacy_storage(self) -> LegacyStorage:
        return LegacyStorage(Path(self.pool_plan.base.path))

    def nova_layout(self, open_pool: Callable[[str], Pool] | None = None) -> NovaLayout:
        """Where Nova keeps disks; without a way to open pools, those that are files."""
        plan = self.pool_plan
        return NovaLayout(
            instances=self.commons.settings.instances_path,
            cache=ImageCache(path=Path(plan.base.path), pool=plan.base.name),
            usual=self.settings.libvirt.selection.blank_backend().disk_format,
            pools=tuple(Path(each.path) for each in plan.directories() if each != plan.base),
            volumes=self._pools_of_nova(open_pool) if open_pool else {},
        )

    def legacy_layout(self) -> NovaLayout:
        """With the disks in pools that Nova has given names like ours."""
        if not self.probe_local_files():
            what, reason = "finding disks in Nova's legacy layout", "they lie in no pool"
            raise NeedsHostFiles(what, reason, str(self.commons.settings.instances_path))
        return self.nova_layout(self.refreshed_pool)

    def refreshed_pool(self, name: str) -> Pool:
        """With what was put there behind libvirt's back."""
        pool = self.pools.named(name)
        pool.refresh()
        return pool

    def _pools_of_nova(self, open_pool: Callable[[str], Pool]) -> Mapping[Backend, Pool]:
        """Those in which Nova's disks bear the names that ours do (B25)."""
        found: dict[Backend, Pool] = {}
        for backend, pool in self.pool_plan.by_backend.items():
            with suppress(PoolNotFound):
                found[backend] = open_pool(pool.name)
        return found

    def volume_owners(self, pool: LibvirtPool) -> Mapping[str, str]:
        """What each volume of a pool belongs to, in words, from the records."""
        keeps_templates = pool.ceph or pool.name == self.pool_plan.base.name
        templates = self.cache.all() if keeps_templates else ()
        servers, _ = self.commons.records.readable()  # of all hosts: they may share the pool
        disks = [(disk, server) for server in servers for disk in server.disks]
        overlays = [(server.overlay, server) for server in servers]
        return {
            **{
                disk.template.volume: f"disk {disk.role} of server {server.name}, as its base"
                for disk, server in disks
                if disk.path and disk.template and disk.template.pool == pool.name
            },
            **{each.volume: f"image {each.image}" for each in templates},
            **{
                name: f"server {server.name}"
                for disk, server in disks
                if disk.pool == pool.name
                for name in server.volumes_of(disk)
            },
            **{o.volume: f"server {s.name}" for o, s in overlays if o and o.pool == pool.name},
        }

    def _virt_type(self) -> VirtType:
        wanted = self.settings.libvirt.virt_type
        if wanted in (VirtTypeOption.KVM, VirtTypeOption.QEMU):
            return VirtType(wanted.value)
        return virtualization.choose(self.libvirtd, local=self.probe_local_files())
