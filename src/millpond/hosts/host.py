"""One host, as a record of its collaborators. It has no verbs, and decides nothing."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from millpond.config import LOCAL, HostSettings, LibvirtSettings, VirtTypeOption
from millpond.disks.backend import ImageBackend
from millpond.disks.disks import Disks
from millpond.disks.imaging import Imaging
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.rbd_storage import RbdStorage
from millpond.errors import MillpondError
from millpond.hosts.cache import Cache
from millpond.hosts.shared import Shared
from millpond.images.source import Library
from millpond.legacy.image_files import ImageCache
from millpond.legacy.layout import NovaLayout
from millpond.legacy.storage import LegacyStorage
from millpond.libvirt import virtualization
from millpond.libvirt.block_jobs import BlockJobs
from millpond.libvirt.consoles import ConsoleFiles, Consoles, ConsoleVolumes
from millpond.libvirt.domains import Domains
from millpond.libvirt.pool import Pool, PoolType
from millpond.libvirt.pools import PoolPlan, Pools, PoolWanted
from millpond.model.formats import Backend
from millpond.model.layer import CephAccess
from millpond.model.server import VirtType
from millpond.records.journal import Watch, unwatched
from millpond.records.records import Records, RecordsOfHosts
from millpond.scheduling.claims import Claims, Unclaimed
from millpond.system import ceph_conf
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks, Slots
from millpond.templates.uses import TemplateUses, Use


def plan_pools(libvirt: LibvirtSettings) -> PoolPlan:
    pools = libvirt.pools
    own = {Backend.LVM: _lvm_pool(libvirt), Backend.RBD: _rbd_pool(libvirt)}
    return PoolPlan(
        base=PoolWanted(name=pools.base_images.name, path=str(pools.base_images.path)),
        disks=PoolWanted(name=pools.disks.name, path=str(pools.disks.path)),
        by_role={
            role: PoolWanted(name=pool.name, path=str(pool.path))
            for role, pool in pools.by_disk_name.items()
        },
        by_backend={backend: each for backend, each in own.items() if each},
    )


def _lvm_pool(libvirt: LibvirtSettings) -> PoolWanted | None:
    group = libvirt.volume_group
    if not group:
        return None
    return PoolWanted(
        name=libvirt.pools.lvm, path=f"/dev/{group}", type=PoolType.LOGICAL, source=group
    )


def _rbd_pool(libvirt: LibvirtSettings) -> PoolWanted | None:
    rbd = libvirt.rbd
    if rbd is None:
        return None
    access = CephAccess(
        pool=rbd.pool,
        monitors=ceph_conf.monitors(rbd.ceph_conf),
        user=rbd.user,
        secret=rbd.secret_uuid,
        conf=rbd.ceph_conf,
    )
    return PoolWanted(name=libvirt.pools.rbd, path="", type=PoolType.RBD, ceph=access)


class Host:
    """Each collaborator is made when it is first asked for: listing servers touches no pool. One
    that is assigned before stands in for it, and for all that is made of it."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        watch: Watch = unwatched,
        claims: Claims | None = None,
    ) -> None:
        self.name = name
        self.shared = shared
        self.settings: HostSettings = shared.settings.hosts[name]
        self.watch = watch
        self.claims = claims or Unclaimed()
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
            return ConsoleFiles(self.shared.settings.instances_path)
        return ConsoleVolumes(lambda: self.pools.consoles)

    @cached_property
    def pool_plan(self) -> PoolPlan:
        return plan_pools(self.settings.libvirt)

    @cached_property
    def domains(self) -> Domains:
        return Domains(self.libvirtd)

    @cached_property
    def cache(self) -> Cache:
        return Cache(
            settings=self.settings,
            common=self.shared.settings,
            records=self.records,
            images=self.images,
            pools=self.pools,
            uses=self.template_uses,
            cluster=self.rbd_storage if self.settings.libvirt.rbd else None,
            watch=self.watch,
            reader=self._qemu_uid,
            host=self.name,
            sidecar=self.directory / "templates",
        )

    def _qemu_uid(self) -> int:
        user = virtualization.qemu_user(self.libvirtd)
        return user.uid if user else 0

    @property
    def template_uses(self) -> TemplateUses:
        """A template that a host uses stays on all that have their cache at the same place: they
        may share it, and nobody has proven that they do not."""
        place = self.settings.libvirt.pools.base_images.path
        hosts = self.shared.settings.hosts.items()
        others = {name for name, each in hosts if each.libvirt.pools.base_images.path != place}
        records = RecordsOfHosts(self.shared.records, lambda host: host not in others)
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
            legacy=self.legacy,
            selection=self.settings.libvirt.selection,
            images=self.images,
            templates=self.cache.templates,
            blanks=self.cache.blanks,
            base_pool=self.pool_plan.base.name,
            locks=self.locks,
            watch=self.watch,
        )

    @cached_property
    def imaging(self) -> Imaging:
        return Imaging(self.disks, self.domains, self.block_jobs, self.watch)

    @cached_property
    def block_jobs(self) -> BlockJobs:
        return BlockJobs(self.libvirtd)

    @cached_property
    def legacy(self) -> LegacyStorage:
        """Of disks that lie in no pool."""
        return LegacyStorage(Path(self.pool_plan.base.path))

    @cached_property
    def starts(self) -> Slots:
        """How many guests may be starting at a time: more only slow each other down, and who
        looks."""
        return Slots(self.locks, "start", max(1, (os.cpu_count() or 1) - 1))

    def choose_virt_type(self) -> VirtType:
        """Asked only when a server is made: finding out costs a call."""
        wanted = self.settings.libvirt.virt_type
        if wanted in (VirtTypeOption.KVM, VirtTypeOption.QEMU):
            return VirtType(wanted.value)
        return virtualization.choose(self.libvirtd, local=self.probe_local_files())
