"""Settings to hosts, records and images: the wiring, once, for every program."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import stevedore

from millpond import config
from millpond.backends.backend import ImageBackend
from millpond.backends.libvirt_storage import LibvirtStorage
from millpond.compute import virtualization
from millpond.compute.block_jobs import BlockJobs
from millpond.compute.domains import Domains
from millpond.compute.host import Host
from millpond.config import Settings, VirtTypeOption
from millpond.errors import Ambiguous, ServerNotFound
from millpond.images.catalogue import Catalogue
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, ServerId, template_name
from millpond.model.server import Server, VirtType
from millpond.model.template import Template
from millpond.records.files import FileRecords
from millpond.records.journal import Watch, unwatched
from millpond.storage.ensure import PoolWanted
from millpond.storage.libvirt_pool import LibvirtPool
from millpond.storage.pool import PoolType
from millpond.storage.pools import PoolPlan, Pools
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks, Slots
from millpond.templates.blank import BlankTemplates
from millpond.templates.handler import BaseTemplateImagehandler, Workshop
from millpond.templates.store import TemplateStore


class Engine:
    """Everything is made when it is first asked for: listing servers touches no pool."""

    def __init__(self, settings: Settings, watch: Watch = unwatched) -> None:
        self.settings = settings
        self._watch = watch
        self._locks = Locks(settings.state_path / "locks")

    @classmethod
    def load(cls, config_files: Sequence[Path], watch: Watch = unwatched) -> "Engine":
        return cls(config.load(config_files), watch)

    @cached_property
    def records(self) -> FileRecords:
        return FileRecords(self.settings.state_path, self._locks)

    @cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.images_directory)

    @property
    def images_directory(self) -> Path:
        return self.settings.state_path / "images"

    @cached_property
    def libvirtd(self) -> Libvirtd:
        return Libvirtd(self.settings.libvirt.connection_uri)

    @cached_property
    def pools(self) -> Pools:
        return Pools(self.libvirtd, self.pool_plan, self._locks)

    @cached_property
    def pool_plan(self) -> PoolPlan:
        pools = self.settings.libvirt.pools
        return PoolPlan(
            base=PoolWanted(name=pools.base_images.name, path=str(pools.base_images.path)),
            disks=PoolWanted(name=pools.disks.name, path=str(pools.disks.path)),
            by_role={
                role: PoolWanted(name=pool.name, path=str(pool.path))
                for role, pool in pools.by_disk_name.items()
            },
            others=self._pools_of_backends(),
        )

    def _pools_of_backends(self) -> tuple[PoolWanted, ...]:
        group = self.settings.libvirt.volume_group
        if not group:
            return ()
        name = self.settings.libvirt.pools.lvm
        path = f"/dev/{group}"
        return (PoolWanted(name=name, path=path, type=PoolType.LOGICAL, source=group),)

    @cached_property
    def domains(self) -> Domains:
        return Domains(self.libvirtd)

    @cached_property
    def template_store(self) -> TemplateStore:
        return TemplateStore(self.pools.base)

    @cached_property
    def templates(self) -> BaseTemplateImagehandler:
        workshop = Workshop(
            store=self.template_store,
            images=self.catalogue,
            users=self.template_users,
            watch=self._watch,
        )
        manager: Any = stevedore.DriverManager(
            "millpond.template_handlers",
            self.settings.template_image_handler,
            invoke_on_load=True,
            invoke_args=(workshop,),
        )
        handler = manager.driver
        assert isinstance(handler, BaseTemplateImagehandler)
        return handler

    @cached_property
    def host(self) -> Host:
        """The local host. Its pools are looked at, and made where they are missing."""
        lvm = self.settings.libvirt.pools.lvm
        backends: dict[Backend, ImageBackend] = {
            Backend.RAW: LibvirtStorage(Backend.RAW, self.pools),
            Backend.QCOW2: LibvirtStorage(Backend.QCOW2, self.pools),
            Backend.LVM: LibvirtStorage(Backend.LVM, self.pools, pool=lvm),
        }
        return Host(
            name="local",
            domains=self.domains,
            block_jobs=BlockJobs(self.libvirtd),
            records=self.records,
            images=self.catalogue,
            templates=self.templates,
            blanks=BlankTemplates(
                self.template_store, self.settings.default_ephemeral_format, self._watch
            ),
            pools=self.pools,
            base_pool=self.pool_plan.base.name,
            selection=self.settings.libvirt.selection,
            backends=backends,
            choose_virt_type=self._virt_type,
            instances=self.settings.instances_path,
            starts=Slots(self._locks, "start", max(1, (os.cpu_count() or 1) - 1)),
            watch=self._watch,
        )

    def server(self, name_or_id: str) -> Server:
        """By id (also if another's record is damaged), by name, or by the beginning of an id."""
        if found_by_id := self.records.find(ServerId(name_or_id)):
            return found_by_id
        servers = self.records.all()
        exact = [each for each in servers if name_or_id in (each.name, each.id)]
        found = exact or [each for each in servers if each.id.startswith(name_or_id)]
        if len(found) > 1:
            raise Ambiguous("server", name_or_id, tuple(each.id for each in found))
        if not found or not name_or_id:
            raise ServerNotFound(name_or_id)
        return found[0]

    def image_users(self, image: Image) -> tuple[str, ...]:
        """Servers that were made from the image."""
        return tuple(each.name for each in self.records.all() if each.image.id == image.id)

    def remove_templates(self, image: Image) -> None:
        """Templates of an image that goes. Where none was ever made, no pool is made for it."""
        if not Path(self.pool_plan.base.path).is_dir():
            return
        for template in list(self.template_store.all()):
            if template.image == image.id:
                self.templates.remove_image(image.id, template.format)

    def find_template(self, image: ImageId, format: DiskFormat) -> Template | None:
        """If it is there; no pool is made to look for it."""
        if not Path(self.pool_plan.base.path).is_dir():
            return None
        return self.template_store.find(template_name(image, format))

    def template_users(self, template: str) -> tuple[str, ...]:
        """Servers that stand on a template, or are being made from it."""
        return tuple(
            server.name
            for server in self.records.all()
            for disk in server.disks
            if disk.template
            and disk.template.volume == template
            and (disk.overlay or server.operation)
        )

    def volume_owners(self, pool: LibvirtPool) -> Mapping[str, str]:
        """What each volume of a pool belongs to, in words, from the records."""
        templates = TemplateStore(pool).all() if pool.name == self.pool_plan.base.name else ()
        disks = ((disk, server) for server in self.records.all() for disk in server.disks)
        overlays = ((server.overlay, server) for server in self.records.all())
        return {
            **{each.volume: f"image {each.image}" for each in templates},
            **{disk.volume: f"server {s.name}" for disk, s in disks if disk.pool == pool.name},
            **{o.volume: f"server {s.name}" for o, s in overlays if o and o.pool == pool.name},
        }

    def _virt_type(self) -> VirtType:
        wanted = self.settings.libvirt.virt_type
        if wanted in (VirtTypeOption.KVM, VirtTypeOption.QEMU):
            return VirtType(wanted.value)
        return virtualization.choose(self.libvirtd)
