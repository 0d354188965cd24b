"""Nova's libvirt driver with disks that are volumes of our pools. docs/nova.md says of each
override why it is there."""

import logging
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import nova.conf
import nova.utils
from nova import exception
from nova.compute import power_state, task_states
from nova.compute import utils as compute_utils
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.compute import image_types, precache, space
from millpond.compute.single_disks import SingleDisks
from millpond.engine import Engine
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.names import ImageId, ServerId, template_name
from millpond.model.server import Disk
from millpond.model.sizes import GiB
from millpond.nova import wiring
from millpond.nova.explaining import explained
from millpond.nova.images import PoolBackend
from millpond.nova.records import InstanceRecords
from millpond.nova.recovery import recover, snapshots_of
from millpond.records.journal import Watch, unwatched

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_SNAPSHOTS = (DiskFormat.QCOW2, DiskFormat.RAW)
_RUNS = (power_state.RUNNING, power_state.PAUSED)
_NOT_YET = "Millpond does not move the disks of servers between hosts yet"


class MillpondDriver(LibvirtDriver):
    watch: Watch = staticmethod(unwatched)
    """Told the steps of disks and templates."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        types = self.engine.image_types
        self.capabilities |= {
            **{f"supports_image_type_{each}": each in types for each in ImageFormat},
            # These are done by code of Nova's that never sees our disks.
            "supports_trusted_certs": False,
            "supports_ephemeral_encryption": False,
            "supports_evacuate": False,
        }

    @cached_property
    def engine(self) -> Engine:
        return wiring.engine(self.watch)

    @property
    def image_backend(self) -> PoolBackend:
        return self._image_backend

    @image_backend.setter
    def image_backend(self, stock: Any) -> None:
        """Nova's constructor sets it, and asks it a few lines later."""
        self._image_backend = PoolBackend(stock, self.engine)

    @property
    def _disks(self) -> SingleDisks:
        return self.engine.single_disks

    def init_host(self, host: str) -> None:
        super().init_host(host)
        with explained():
            self.engine.cache.templates.init()
        recover(self._disks, host, Path(CONF.libvirt.snapshots_directory))

    def spawn(self, context: Any, instance: Any, image_meta: Any, *args: Any, **kw: Any) -> None:
        self._refuse_unless_taken(image_meta)
        super().spawn(context, instance, image_meta, *args, **kw)

    def rebuild(self, context: Any, instance: Any, image_meta: Any, *_: Any, **__: Any) -> None:
        """Refused while the server is as it was; else Nova does it, by destroy() and spawn()."""
        try:
            self._refuse_unless_taken(image_meta)
        except exception.ImageUnacceptable as error:
            raise exception.InstanceFaultRollback(inner_exception=error) from error
        raise NotImplementedError

    def unrescue(self, context: Any, instance: Any) -> None:
        super().unrescue(context, instance)
        self._delete_disks(instance, ".rescue")

    def snapshot(self, context: Any, instance: Any, image_id: str, update_task_state: Any) -> None:
        record = InstanceRecords(instance).find("disk")
        if record is None:
            super().snapshot(context, instance, image_id, update_task_state)
            return
        update_task_state(task_state=task_states.IMAGE_PENDING_UPLOAD)
        name = self._image_api.get(context, image_id)["name"]
        format = _snapshot_format(record.disk)
        meta = self._create_snapshot_metadata(instance.image_meta, instance, format.value, name)
        place = snapshots_of(CONF.host, Path(CONF.libvirt.snapshots_directory))
        place.mkdir(mode=0o711, parents=True, exist_ok=True)  # QEMU's user goes through it
        with nova.utils.tempdir(dir=str(place)) as directory:
            os.chmod(directory, 0o701)  # QEMU's user writes there
            image = Path(directory, "image")
            with explained(image_id):
                self._copy(context, instance, record.disk, image, format)
            update_task_state(
                task_state=task_states.IMAGE_UPLOADING,
                expected_state=task_states.IMAGE_PENDING_UPLOAD,
            )
            with image.open("rb") as content, compute_utils.disk_ops_semaphore:
                self._image_api.update(context, image_id, meta, content)

    def _copy(
        self, context: Any, instance: Any, disk: Disk, target: Path, format: DiskFormat
    ) -> None:
        guest = self._host.get_guest(instance)
        if guest.get_power_state(self._host) not in _RUNS:
            self._disks.extract(disk, target, format)
            return
        with self._disks.copied(ServerId(instance.uuid), disk, target, format) as stop:
            self._quiescing(context, instance, stop)

    def _quiescing(self, context: Any, instance: Any, stop: Callable[[], None]) -> None:
        """Where the guest's agent can, its file systems are at rest at the moment of the copy."""
        image = instance.image_meta
        try:
            self.quiesce(context, instance, image)
        except exception.NovaException:
            if self._requires_quiesce(image):
                raise
            stop()
            return
        try:
            stop()
        finally:
            self.unquiesce(context, instance, image)

    def cache_image(self, context: Any, image_id: str) -> bool:
        with explained(image_id):
            image = self.engine.images.describe(ImageId(image_id))
            wanted = list(precache.wanted(image, None, self.engine.settings.libvirt.selection))
            known = {each.volume for each in self.engine.cache.all()}
            host = self.engine.host
            fetched = precache.fetch(host.templates, host.backends, wanted, 1)
        return any(each.volume not in known for each in fetched)

    def manage_image_cache(self, context: Any, all_instances: Any) -> None:
        """Ours, and what Nova's own driver has left in the same directory."""
        manager, rules = self.engine.cache.manager, self.engine.cache.rules
        with explained():
            manager.prune(rules)
            manager.prune_bases(rules, _bases_of(all_instances))

    def migrate_disk_and_power_off(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        if InstanceRecords(instance).all():
            error = exception.ResizeError(reason=_NOT_YET)
            raise exception.InstanceFaultRollback(inner_exception=error)
        return super().migrate_disk_and_power_off(context, instance, *args, **kw)

    def check_can_live_migrate_destination(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        """After MigrationPreCheckError Nova would ask other hosts, and not say why none will."""
        if InstanceRecords(instance).all():
            raise exception.NoValidHost(reason=_NOT_YET)
        return super().check_can_live_migrate_destination(context, instance, *args, **kw)

    def _cleanup(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        super()._cleanup(context, instance, *args, **kwargs)
        if kwargs.get("cleanup_instance_disks"):
            self._delete_disks(instance)

    def delete_instance_files(self, instance: Any) -> bool:
        """Of a server that was deleted while no nova-compute ran here, Nova asks for these alone:
        then the volumes go with them."""
        try:
            if instance.deleted:
                self._delete_disks(instance)
        except exception.NovaException as error:
            LOG.error("disks of instance %s, which is deleted, stay: %s", instance.uuid, error)
            return False
        return bool(super().delete_instance_files(instance))

    def _cleanup_lvm(self, instance: Any, block_device_info: Any) -> None:
        """Volumes are deleted through their pool, by their records."""

    def _cleanup_rbd(self, instance: Any) -> None:
        """The same."""

    def _get_local_gb_info(self) -> dict[str, float]:
        with explained():
            usage = self.engine.disk_space()
        return {
            "total": usage.capacity / GiB,
            "free": usage.available / GiB,
            "used": (usage.capacity - usage.available) / GiB,
        }

    def _get_disk_over_committed_size_total(self) -> int:
        stock: int = super()._get_disk_over_committed_size_total()
        with explained():
            return stock + space.promised(self.engine.pools, self.engine.records.all())

    def _delete_disks(self, instance: Any, suffix: str = "") -> None:
        """The volume first: as long as it may be there, its record is. What lives on another host
        now has its disks and its records there."""
        if instance.host not in (None, CONF.host):
            return
        records = InstanceRecords(instance)
        with explained():
            for record in records.all():
                if record.disk.role.endswith(suffix):
                    self._disks.delete(record.disk)
                    records.remove(record.disk.role)

    def _refuse_unless_taken(self, image_meta: Any) -> None:
        """A server that boots from a volume may have no image."""
        if image_meta.obj_attr_is_set("disk_format") and image_meta.disk_format:
            image = image_meta.id if image_meta.obj_attr_is_set("id") else None
            with explained(image):
                image_types.refuse_unless_taken(image_meta.disk_format, self.engine.image_types)


def _bases_of(instances: Any) -> frozenset[str]:
    """As Nova names what they were made from, wherever that is."""
    images = {
        image
        for each in instances
        for image in (each.image_ref, each.kernel_id, each.ramdisk_id)
        if image
    }
    return frozenset(template_name(ImageId(each), DiskFormat.RAW) for each in images)


def _snapshot_format(disk: Disk) -> DiskFormat:
    """As the operator wants it, or as the disk is if an image can be that."""
    wanted = CONF.libvirt.snapshot_image_format or disk.format
    return DiskFormat(wanted) if wanted in _SNAPSHOTS else DiskFormat.QCOW2
