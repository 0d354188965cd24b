"""What Nova's driver calls an image backend: a disk of an instance as a volume of a pool."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import nova.conf
from nova.compute import utils as compute_utils
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt.config import LibvirtConfigGuestDisk

from millpond.disks.backend import DiskRequest
from millpond.disks.disks import Disks
from millpond.disks.selection import ImagesType
from millpond.errors import Conflict, ImageNotFound, PoolNotFound, VolumeNotFound
from millpond.hosts.host import Host
from millpond.model.formats import Backend
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Content, Disk
from millpond.model.template import Template
from millpond.nova.explaining import MillpondFailed, explaining
from millpond.nova.records import InstanceRecords
from millpond.records.journal import undo_on_failure
from millpond.xml.domain import LayersXml, layers_xml

CONF = nova.conf.CONF

_KINDS = {Backend.LVM: "block", Backend.RBD: "network"}
"""As disk_cachemodes calls them."""


class GuestDisk(LibvirtConfigGuestDisk):
    """A ``<disk>`` as Nova describes it, but for its layers, which we state: Nova's own class
    writes no source for a volume."""

    def __init__(self, described: LibvirtConfigGuestDisk, disk: Disk, layers: LayersXml) -> None:
        super().__init__()
        self.__dict__.update(vars(described))
        self._layers = layers
        self.kind = _KINDS.get(disk.backend, "file")
        self.source_type = layers.type
        self.driver_format = layers.format.value

    def format_dom(self) -> Any:
        node = super().format_dom()
        if policy := self._layers.error_policy:
            for name in ("error_policy", "rerror_policy"):
                node.find("driver").set(name, policy)
        node.append(self._layers.source.to_node())
        node.append(self._layers.backing.to_node())
        return node


class VolumeImage(imagebackend.Image):
    """One disk, by its role. What it is stands in its record, whatever is configured now."""

    def __init__(
        self, disks: Disks, instance: Any, role: str, mapping: Any, *, may_make: bool
    ) -> None:
        super().__init__(role, "volume", None, disk_info_mapping=mapping)
        self._disks = disks
        self._server = ServerId(instance.uuid)
        self._role = role
        self._records = InstanceRecords(instance)
        self._may_make = may_make

    def exists(self) -> bool:
        with explaining():
            record = self._records.find(self._role)
            with suppress(PoolNotFound):  # of the host that it was evacuated from
                return bool(record and record.made and self._disks.exists(record.disk))
            return False

    def cache(self, *_: Any, size: int | None = None, **wanted: Any) -> None:
        """Make the disk unless it is there. What Nova would fetch or format, we do ourselves."""
        image, trusted = wanted.get("image_id"), _ids(wanted.get("trusted_certs"))
        filesystem = wanted.get("specified_fs") or ""
        with explaining(image):
            if self.exists():
                fetch_base(self._disks, self._records.get(self._role).disk, image, trusted)
                self.resize_image(size or 0)
                return
            with self._disks.lock(self._server):
                disk = self._plan(_content(self._role), size or 0, image, filesystem)
                self._make(disk, image, trusted=trusted)

    def create_image(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("cache() makes disks")

    def resize_image(self, size: int) -> None:
        with explaining():
            disk = self._records.get(self._role).disk
            if size > disk.size:
                self._records.put(self._disks.grow(disk, size), made=True)

    def libvirt_info(self, *args: Any, **kwargs: Any) -> GuestDisk:
        with explaining():
            disk = self._describe()
            layers = layers_xml(self._disks.chain(disk))
        return GuestDisk(super().libvirt_info(*args, **kwargs), disk, layers)

    def import_file(self, _instance: Any, local_file: str, _remote_name: str) -> None:
        """The config drive, which Nova has made as a file."""
        content = Path(local_file).read_bytes()
        with explaining(), self._disks.lock(self._server):
            self._make(self._plan(Content.CONFIG, len(content)), None, content)
        if CONF.libvirt.images_type != "rbd":  # then Nova does it, and must find it
            os.unlink(local_file)

    def snapshot_extract(self, target: str, out_format: str) -> None:
        raise NotImplementedError("the driver makes snapshots")

    def get_model(self, _connection: Any) -> Any:
        raise NotImplementedError("nothing is injected into volumes: use a config drive")

    def _describe(self) -> Disk:
        """Nova describes the config drive before it makes it. A guest that found another disk
        half made would take it for its own."""
        if _content(self._role) is Content.CONFIG:
            found = self._records.find(self._role)
            return found.disk if found else self._plan(Content.CONFIG, 0)
        record = self._records.get(self._role)
        if not record.made:
            raise Conflict(
                f"disk {self._role!r} of server {self._server!r} was begun and never finished",
                "rebuild the server, or delete it: nothing of its user's is on that disk",
            )
        return record.disk

    def _make(
        self,
        planned: Disk,
        image: str | None,
        fill: bytes = b"",
        trusted: tuple[str, ...] = (),
    ) -> None:
        """A server that is deleted meanwhile takes no record, and the disk goes with it."""
        with undo_on_failure() as undo:
            with compute_utils.disk_ops_semaphore:
                template = self._disks.fetch_template(
                    planned, ImageId(image) if image else None, trusted=trusted
                )
                undo.callback(self._disks.delete, planned)
                disk = self._disks.create(planned, template, fill)
            self._records.put(disk, made=True)

    def _plan(
        self, content: Content, size: int, image: str | None = None, filesystem: str = ""
    ) -> Disk:
        """Into the record before anything is made."""
        if not self._may_make:  # a server that was moved here, say, would begin as a new one
            missing = self._records.get(self._role).disk
            raise VolumeNotFound(missing.pool, missing.volume)
        request = DiskRequest(
            server=self._server,
            role=self._role,
            content=content,
            size=size,
            image=self._disks.images.describe(ImageId(image)) if image else None,
            filesystem=filesystem,
        )
        disk = self._disks.plan(request)
        self._records.put(disk, made=False)
        return disk


class PoolBackend:
    """In the place of Nova's imagebackend.Backend, which goes on to serve what is not ours:
    kernels, ramdisks, and disks from before, be they files, logical volumes or images in Ceph."""

    def __init__(self, stock: Any, host: Host) -> None:
        self._stock = stock
        self._host = host
        self._makes: dict[str, tuple[str, Collection[str]]] = {}

    @contextmanager
    def making(self, instance: Any, suffix: str = "", but: Collection[str] = ()) -> Iterator[None]:
        """In the block disks of this instance whose names end so are made, as ours, but for those
        that have to be there. At no other time is a disk without a record ours."""
        self._makes[instance.uuid] = (suffix, but)
        try:
            yield
        finally:
            del self._makes[instance.uuid]

    def backend(self, image_type: str | None = None) -> Any:
        """Nova asks its class whether disks from before are shared with other hosts."""
        return VolumeImage if self._pools_only else self._stock.backend(image_type)

    def by_name(
        self,
        instance: Any,
        name: str,
        image_type: str | None = None,
        disk_info_mapping: Any = None,
    ) -> Any:
        may_make = self._may_make(instance, name)
        if _is_always_novas(name) or not (may_make or InstanceRecords(instance).has(name)):
            self._refuse_unless_known(instance, name, image_type)
            return self._stock.by_name(instance, name, image_type, disk_info_mapping)
        disks = self._host.disks
        return VolumeImage(disks, instance, name, disk_info_mapping, may_make=may_make)

    def by_libvirt_path(self, instance: Any, path: str, image_type: str | None = None) -> Any:
        """Only of disks from before: volumes have no path."""
        return self._stock.by_libvirt_path(instance, path, image_type)

    def _may_make(self, instance: Any, name: str) -> bool:
        suffix, but = self._makes.get(instance.uuid, (None, ()))
        pools = self._host.settings.libvirt.use_storage_pools
        return pools and suffix is not None and name.endswith(suffix) and name not in but

    def _refuse_unless_known(self, instance: Any, name: str, image_type: str | None) -> None:
        """With images_type = libvirt-storage Nova has no backend for what is not ours."""
        if self._pools_only and image_type in (None, ImagesType.LIBVIRT_STORAGE):
            reason = (
                f"no record says where disk {name!r} of server {instance.uuid} is, and "
                f"images_type = {ImagesType.LIBVIRT_STORAGE} allows none of Nova's own"
            )
            raise MillpondFailed(reason=reason)

    @property
    def _pools_only(self) -> bool:
        return self._host.settings.libvirt.selection.images_type.pools_only


def fetch_base(
    disks: Disks, disk: Disk, image: str | None, trusted: tuple[str, ...] = ()
) -> Template | None:
    """What backs a disk that another host has made. Not what was formatted for files: each host
    has another one. A swap area of the same size serves as well."""
    if not disk.overlay or disk.content not in (Content.IMAGE, Content.SWAP):
        return None
    is_swap = disk.content is Content.SWAP
    wanted = None if is_swap else ImageId(image or "")
    return disks.fetch_template(disk, wanted, trusted=trusted)


def trusted_by(instance: Any) -> tuple[str, ...]:
    """Certificates that its user trusts to sign images; the list is empty for most."""
    return _ids(instance.trusted_certs)


def refuse_untrusted(disks: Disks, instance: Any) -> None:
    """Before a server moves, whose user trusts some certificates alone: the other host is to
    prepare its image again. One that is gone is sent whole."""
    if (trusted := trusted_by(instance)) and instance.image_ref:
        with suppress(ImageNotFound):
            image = disks.images.describe(ImageId(instance.image_ref))
            disks.images.open(replace(image, trusted=trusted))


def _ids(certificates: Any) -> tuple[str, ...]:
    """Of objects.TrustedCerts, if there are any."""
    return tuple(certificates.ids) if certificates else ()


def _is_always_novas(name: str) -> bool:
    """What a domain names by its path: Nova keeps it in the instance's directory. A whole path is
    of a disk that Nova moves here."""
    return os.path.isabs(name) or name.removesuffix(".rescue") in ("kernel", "ramdisk")


def _content(role: str) -> Content:
    role = role.removesuffix(".rescue")
    if role == "disk.config":
        return Content.CONFIG
    if role == "disk.swap":
        return Content.SWAP
    return Content.IMAGE if role == "disk" else Content.EPHEMERAL
