"""What Nova's driver calls an image backend: a disk of an instance as a volume of a pool."""

import os
from pathlib import Path
from typing import Any

import nova.conf
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import utils as libvirt_utils
from nova.virt.libvirt.config import LibvirtConfigGuestDisk

from millpond.compute.domain_xml import LayersXml
from millpond.compute.single_disks import DiskOrder, SingleDisks
from millpond.engine import Engine
from millpond.errors import DiskUnfinished
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Content, Disk
from millpond.nova.explaining import explained
from millpond.nova.records import InstanceRecords

CONF = nova.conf.CONF

_FILES = ("kernel", "ramdisk")
"""What Nova keeps in the instance's directory: a domain names it by its path."""


class GuestDisk(LibvirtConfigGuestDisk):
    """A ``<disk>`` as Nova describes it, but for its layers, which we state: Nova's own class
    writes no source for a volume."""

    def __init__(self, described: LibvirtConfigGuestDisk, layers: LayersXml) -> None:
        super().__init__()
        self.__dict__.update(vars(described))
        self._layers = layers
        self.source_type = layers.type
        self.driver_format = layers.format.value

    def format_dom(self) -> Any:
        node = super().format_dom()
        node.append(self._layers.source.to_node())
        node.append(self._layers.backing.to_node())
        return node


class VolumeImage(imagebackend.Image):
    """One disk, by its role. What it is stands in its record, whatever is configured now."""

    def __init__(self, disks: SingleDisks, instance: Any, role: str, mapping: Any) -> None:
        super().__init__(role, "volume", None, disk_info_mapping=mapping)
        self._disks = disks
        self._server = ServerId(instance.uuid)
        self._role = role
        self._records = InstanceRecords(instance)

    def exists(self) -> bool:
        with explained():
            record = self._records.find(self._role)
            return bool(record and record.made and self._disks.exists(record.disk))

    def cache(self, *_: Any, size: int | None = None, **wanted: Any) -> None:
        """Make the disk unless it is there. What Nova would fetch or format, we do ourselves."""
        image = wanted.get("image_id")
        with explained(image):
            if self.exists():
                self.resize_image(size or 0)
                return
            with self._disks.working_on(self._server):
                self._make(_content(self._role), size or 0, image and ImageId(image))

    def create_image(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("cache() makes disks")

    def resize_image(self, size: int) -> None:
        with explained():
            disk = self._records.get(self._role).disk
            if size > disk.size:
                self._records.put(self._disks.grow(disk, size), made=True)

    def libvirt_info(self, *args: Any, **kwargs: Any) -> GuestDisk:
        with explained():
            layers = self._disks.layers(self._described())
        return GuestDisk(super().libvirt_info(*args, **kwargs), layers)

    def import_file(self, _instance: Any, local_file: str, _remote_name: str) -> None:
        """The config drive, which Nova has made as a file."""
        content = Path(local_file).read_bytes()
        with explained(), self._disks.working_on(self._server):
            disk = self._make(Content.CONFIG, len(content), None, made=False)
            self._disks.fill(disk, content)
            self._records.put(disk, made=True)
        if CONF.libvirt.images_type != "rbd":  # then Nova does it, and must find it
            os.unlink(local_file)

    def snapshot_extract(self, target: str, out_format: str) -> None:
        raise NotImplementedError("the driver makes snapshots")

    def get_model(self, _connection: Any) -> Any:
        raise NotImplementedError("nothing is injected into volumes: use a config drive")

    def _described(self) -> Disk:
        """Nova describes the config drive before it makes it. A guest that found another disk
        half made would take it for its own."""
        if _content(self._role) is Content.CONFIG:
            found = self._records.find(self._role)
            return found.disk if found else self._plan(Content.CONFIG, 0, None)
        record = self._records.get(self._role)
        if not record.made:
            raise DiskUnfinished(self._server, self._role)
        return record.disk

    def _make(
        self, content: Content, size: int, image: ImageId | None, *, made: bool = True
    ) -> Disk:
        disk = self._disks.make(self._plan(content, size, image), image)
        self._records.put(disk, made=made)
        return disk

    def _plan(self, content: Content, size: int, image: ImageId | None) -> Disk:
        """Into the record before anything is made."""
        order = DiskOrder(
            server=self._server, role=self._role, content=content, size=size, image=image
        )
        disk = self._disks.plan(order)
        self._records.put(disk, made=False)
        return disk


class PoolBackend:
    """In the place of Nova's imagebackend.Backend, which goes on to serve what lies outside of
    pools: kernels, ramdisks, and disks from before."""

    def __init__(self, stock: Any, engine: Engine) -> None:
        self._stock = stock
        self._engine = engine

    def backend(self, _image_type: str | None = None) -> type[VolumeImage]:
        return VolumeImage

    def by_name(
        self,
        instance: Any,
        name: str,
        image_type: str | None = None,
        disk_info_mapping: Any = None,
    ) -> Any:
        if self._is_a_file(instance, name):
            return self._stock.by_name(instance, name, image_type, disk_info_mapping)
        disks = self._engine.single_disks
        return VolumeImage(disks, instance, os.path.basename(name), disk_info_mapping)

    def by_libvirt_path(self, instance: Any, path: str, image_type: str | None = None) -> Any:
        """Only of disks from before: volumes have no path."""
        return self._stock.by_libvirt_path(instance, path, image_type)

    def _is_a_file(self, instance: Any, name: str) -> bool:
        if name.removesuffix(".rescue") in _FILES:
            return True
        if InstanceRecords(instance).find(os.path.basename(name)):
            return False
        file = os.path.join(libvirt_utils.get_instance_path(instance), name)
        return not self._engine.settings.libvirt.use_storage_pools or os.path.exists(file)


def _content(role: str) -> Content:
    role = role.removesuffix(".rescue")
    if role == "disk.config":
        return Content.CONFIG
    if role == "disk.swap":
        return Content.SWAP
    return Content.IMAGE if role == "disk" else Content.EPHEMERAL
