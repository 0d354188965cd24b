"""Nova's libvirt driver with disks that are volumes of our pools. docs/nova.md says of each
override why it is there."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import nova.conf
import nova.utils
from nova import exception
from nova.compute import power_state, task_states, vm_states
from nova.compute import utils as compute_utils
from nova.context import get_admin_context
from nova.objects.fields import MigrationType
from nova.objects.instance import Instance
from nova.objects.migration import MigrationList
from oslo_concurrency import lockutils

from millpond.disks import image_types, precache, space
from millpond.disks.backend import ImageFile
from millpond.errors import BadConfiguration
from millpond.hosts.cache import list_templates, prune_bases
from millpond.hosts.capabilities import disk_space, supported_image_types
from millpond.hosts.host import Host
from millpond.model.callbacks import noop
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.names import ImageId, ServerId, template_name
from millpond.model.server import Disk
from millpond.model.sizes import GiB
from millpond.nova import transition, wiring
from millpond.nova.encryption import refuse_encryption
from millpond.nova.evacuation import SavesServers, is_shared_with, mark_pools, recreating
from millpond.nova.explaining import explaining, staying_as_it_was
from millpond.nova.images import GuestDisk, PoolBackend
from millpond.nova.keeping_claims import keep_claim
from millpond.nova.live_moves import MovesRunningServers
from millpond.nova.moves import ResizesServers, is_reverting, refuse_other_cell
from millpond.nova.peers import STATS, find_address, own_address
from millpond.nova.records import InstanceRecords
from millpond.nova.recovery import recover, remove_volumes, snapshots_of
from millpond.nova.resuming import resume
from millpond.nova.unfinished import settle_unfinished
from millpond.records.journal import Watch, undo_on_failure
from millpond.system.mkfs import FILESYSTEMS

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_SNAPSHOTS = (DiskFormat.QCOW2, DiskFormat.RAW)
_RUNS = (power_state.RUNNING, power_state.PAUSED)


class MillpondDriver(ResizesServers, MovesRunningServers, SavesServers):
    watch: Watch = staticmethod(noop)
    """Told the steps of disks and templates."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        types = supported_image_types(self.millpond)
        self.capabilities |= {
            **{f"supports_image_type_{each}": each in types for each in ImageFormat},
            # Nova's would be done by code that never sees our disks.
            "supports_ephemeral_encryption": False,
            "supports_ephemeral_encryption_luks": False,
        }

    @cached_property
    def millpond(self) -> Host:
        return wiring.host(self.watch)

    @property
    def image_backend(self) -> PoolBackend:
        return self._image_backend

    @image_backend.setter
    def image_backend(self, stock: Any) -> None:
        """Nova's constructor sets it, and asks it a few lines later."""
        self._image_backend = PoolBackend(stock, self.millpond)

    def init_host(self, host: str) -> None:
        super().init_host(host)
        with explaining():
            self.millpond.handlers.cleanup()
            mark_pools(self.millpond)
        manager = self.virtapi._compute
        settled = resume(self, manager) | settle_unfinished(self, manager)
        recover(self.millpond, host, Path(CONF.libvirt.snapshots_directory), settled)
        try:
            transition.look_at_start(self.millpond)
        except BadConfiguration as error:  # oslo.service would go on without a manager
            LOG.critical("%s", error)
            os._exit(error.exit_code)

    def spawn(self, context: Any, instance: Any, image_meta: Any, *args: Any, **kw: Any) -> None:
        """Nova leaves to the next spawn what a failed unshelving has made; the server may be
        deleted before."""
        self._refuse_unless_taken(image_meta)
        refuse_encryption(image_meta, instance.flavor, kw.get("block_device_info"))
        if instance.task_state == task_states.RESIZE_FINISH:  # a resize into another cell
            refuse_other_cell(instance)
        with undo_on_failure() as undo:
            if instance.vm_state == vm_states.SHELVED_OFFLOADED:
                network, devices = kw.get("network_info"), kw.get("block_device_info")
                undo.callback(self.destroy, context, instance, network, devices)
            with (
                _alone_with(instance),
                recreating(self.millpond, instance),
                self.image_backend.making(instance),
            ):
                super().spawn(context, instance, image_meta, *args, **kw)
                _refuse_if_deleted(instance)

    def rescue(self, context: Any, instance: Any, *args: Any, **kw: Any) -> None:
        """Nova lets a server be deleted meanwhile."""
        with _alone_with(instance), self.image_backend.making(instance, ".rescue"):
            super().rescue(context, instance, *args, **kw)

    def destroy(self, context: Any, instance: Any, *args: Any, **kw: Any) -> None:
        with _lock(instance):
            super().destroy(context, instance, *args, **kw)

    def rebuild(self, context: Any, instance: Any, image_meta: Any, *_: Any, **kw: Any) -> None:
        """Refused while the server is as it was; else Nova does it, by destroy() and spawn()."""
        try:
            with staying_as_it_was():
                self._refuse_unless_taken(image_meta)
                refuse_encryption(image_meta, instance.flavor, kw.get("block_device_info"))
        except exception.InstanceFaultRollback:
            if not kw.get("evacuate"):
                keep_claim(instance.uuid)
            raise
        raise NotImplementedError

    def _hard_reboot(self, context: Any, instance: Any, *args: Any, **kw: Any) -> None:
        """Also how Nova starts a server. Before it describes the disks, they come into the pools;
        those that cannot stay what they are."""
        with explaining(), _lock(instance):
            if transition.is_concerned(self.millpond, instance):
                self._destroy(instance)  # which Nova does first
                transition.bring_into_pools(self.millpond, instance)
        super()._hard_reboot(context, instance, *args, **kw)

    def unrescue(self, context: Any, instance: Any) -> None:
        super().unrescue(context, instance)
        self._delete_disks(instance, ".rescue")

    def snapshot(self, context: Any, instance: Any, image_id: str, update_task_state: Any) -> None:
        with explaining():
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
            compress = format is DiskFormat.QCOW2 and CONF.libvirt.snapshot_compression
            image = ImageFile(path=Path(directory, "image"), format=format, compress=compress)
            with explaining(image_id), compute_utils.disk_ops_semaphore:
                self._copy(context, instance, record.disk, image)
            update_task_state(
                task_state=task_states.IMAGE_UPLOADING,
                expected_state=task_states.IMAGE_PENDING_UPLOAD,
            )
            with image.path.open("rb") as content, compute_utils.disk_ops_semaphore:
                self._image_api.update(context, image_id, meta, content)

    def _copy(self, context: Any, instance: Any, disk: Disk, image: ImageFile) -> None:
        guest = self._host.get_guest(instance)
        if guest.get_power_state(self._host) not in _RUNS:
            self.millpond.imaging.extract(disk, image)
            return
        with self.millpond.imaging.copy(ServerId(instance.uuid), disk, image) as stop:
            self._stop_quiesced(context, instance, stop)

    def _stop_quiesced(self, context: Any, instance: Any, stop: Callable[[], None]) -> None:
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
        with explaining(image_id):
            image = self.millpond.images.describe(ImageId(image_id))
            wanted = list(precache.plan(image, None, self.millpond.settings.libvirt.selection))
            known = {each.volume for each in list_templates(self.millpond)}
            templates, storage = self.millpond.handlers.chosen, self.millpond.storage
            fetched = precache.fetch(templates, storage, wanted, 1)
        return any(each.volume not in known for each in fetched)

    def manage_image_cache(self, context: Any, all_instances: Any) -> None:
        """Ours, and what Nova's own driver has left in the same directory."""
        with explaining():
            self.millpond.cache_manager.prune(self.millpond.cache_rules)
            prune_bases(self.millpond, _bases_of(all_instances))

    def _cleanup(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        """Ours first: Nova's own part removes whatever else bears the name, and saves. Nova wants
        the disks of an evacuated server to stay if both hosts share the instances' directory; ours
        are not in there, and nobody needs them."""
        InstanceRecords(instance).refresh()
        all_goes = kwargs.get("cleanup_instance_disks")
        if is_reverting(instance):
            self.delete_reverted(instance)
        elif instance.uuid not in self._kept and (all_goes or _lives_elsewhere(instance)):
            self._delete_disks(instance)
        super()._cleanup(context, instance, *args, **kwargs)
        if all_goes:
            self._remove_volumes(instance)

    def delete_instance_files(self, instance: Any) -> bool:
        """Of a server that was deleted while no nova-compute ran here, Nova asks for these alone:
        then the volumes go with them."""
        try:
            if instance.deleted:
                InstanceRecords(instance).refresh()
                self._delete_disks(instance)
                self._remove_volumes(instance)
        except exception.NovaException as error:
            LOG.error("disks of instance %s, which is deleted, stay: %s", instance.uuid, error)
            return False
        return bool(super().delete_instance_files(instance))

    def _cleanup_lvm(self, instance: Any, block_device_info: Any) -> None:
        """Of a server from before. Ours are deleted by then, or have to stay."""
        if not InstanceRecords(instance).any():
            super()._cleanup_lvm(instance, block_device_info)

    def _cleanup_rbd(self, instance: Any) -> None:
        """The same."""
        if not InstanceRecords(instance).any():
            super()._cleanup_rbd(instance)

    def is_supported_fs_format(self, fs_type: str) -> bool:
        """For an ephemeral disk, whose template we format."""
        return fs_type in FILESYSTEMS

    def _set_cache_mode(self, conf: Any) -> None:
        """disk_cachemodes knows files and devices; libvirt calls ours volumes."""
        super()._set_cache_mode(conf)
        if isinstance(conf, GuestDisk):
            conf.driver_cache = self.disk_cachemodes.get(conf.kind, conf.driver_cache)

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """With a word to other hosts, which send servers with disks of ours to none but ours. Nova
        asks each minute: what should be served by then, is."""
        found: dict[str, Any] = super().get_available_resource(nodename)
        with explaining():
            self.millpond.handlers.serve_streams()
        found["stats"] = {**found.get("stats", {}), STATS: own_address()}
        return found

    def _get_local_gb_info(self) -> dict[str, float]:
        with explaining():
            usage = disk_space(self.millpond)
        return {
            "total": usage.capacity / GiB,
            "free": usage.available / GiB,
            "used": usage.allocation / GiB,
        }

    def _get_disk_over_committed_size_total(self) -> int:
        stock: int = super()._get_disk_over_committed_size_total()
        with explaining():
            servers, _damaged = self.millpond.records.readable()  # the doctor tells of those
            return stock + space.sum_promised(self.millpond.pools, servers)

    def _delete_disks(self, instance: Any, suffix: str = "") -> None:
        """The volume first: as long as it may be there, its record is."""
        records = InstanceRecords(instance)
        if not records.any() or not _may_delete(instance):
            return
        are_theirs = _lives_elsewhere(instance) and find_address(instance.host)
        with explaining():
            for record in records.readable() if _is_deleted(instance) else records.all():
                if record.disk.role.endswith(suffix):
                    self._delete_disk(instance, record.disk)
                    if not are_theirs:  # by now they say what the other host has
                        records.remove(record.disk.role)

    def _delete_disk(self, instance: Any, disk: Disk) -> None:
        """The host that a server was evacuated to may use what is not on this host alone."""
        if _lives_elsewhere(instance) and is_shared_with(self.millpond, instance.host, disk.pool):
            LOG.debug("%s stays: host %s may use it", disk.location, instance.host)
        else:
            self.millpond.disks.delete(disk)

    def _remove_volumes(self, instance: Any) -> None:
        """What no record names any more goes with its server."""
        if _is_deleted(instance) and instance.host in (None, CONF.host):
            with explaining():
                remove_volumes(self.millpond, ServerId(instance.uuid))

    def _refuse_unless_taken(self, image_meta: Any) -> None:
        """A server that boots from a volume may have no image."""
        if image_meta.obj_attr_is_set("disk_format") and image_meta.disk_format:
            image = image_meta.id if image_meta.obj_attr_is_set("id") else None
            with explaining(image):
                image_types.refuse_unless_taken(
                    image_meta.disk_format, supported_image_types(self.millpond)
                )


def _bases_of(instances: Any) -> frozenset[str]:
    """As Nova names what they were made from, wherever that is."""
    images = {
        image
        for each in instances
        for image in (each.image_ref, each.kernel_id, each.ramdisk_id)
        if image
    }
    return frozenset(template_name(ImageId(each), DiskFormat.RAW) for each in images)


@contextmanager
def _alone_with(instance: Any) -> Iterator[None]:
    """Nobody destroys the instance meanwhile, and nobody has."""
    with _lock(instance):
        _refuse_if_deleted(instance)
        yield


def _lock(instance: Any) -> AbstractContextManager[object]:
    """Not the one that Nova's manager has: it holds that in some of these calls, and not in
    others."""
    return lockutils.lock(f"millpond-{instance.uuid}")


def _refuse_if_deleted(instance: Any) -> None:
    now = Instance.get_by_uuid(get_admin_context(), instance.uuid)
    if now.task_state == task_states.DELETING:
        raise exception.UnexpectedDeletingTaskStateError(
            instance_uuid=instance.uuid, expected=instance.task_state, actual=now.task_state
        )


def _is_deleted(instance: Any) -> bool:
    """Or about to be."""
    gone = (vm_states.DELETED, vm_states.SOFT_DELETED)
    is_deleting = instance.task_state == task_states.DELETING
    return bool(instance.deleted or is_deleting or instance.vm_state in gone)


def _lives_elsewhere(instance: Any) -> bool:
    return not _is_deleted(instance) and instance.host not in (None, CONF.host)


def _may_delete(instance: Any) -> bool:
    """A server that was evacuated has left its disks here. While that is under way it may still
    be refused, and they are all that there is. What lives elsewhere for another reason has its
    disks there."""
    filters = {
        "instance_uuid": instance.uuid,
        "source_compute": CONF.host,
        "migration_type": MigrationType.EVACUATION,
        "status": ["accepted", "pre-migrating", "done"],  # as Nova asks for those it destroys
    }
    found = MigrationList.get_by_filters(get_admin_context(read_deleted="yes"), filters)
    if not found:
        return instance.host in (None, CONF.host)
    return _is_deleted(instance) or all(each.status == "done" for each in found)


def _snapshot_format(disk: Disk) -> DiskFormat:
    """As the operator wants it, or as the disk is if an image can be that."""
    wanted = CONF.libvirt.snapshot_image_format or disk.format
    return DiskFormat(wanted) if wanted in _SNAPSHOTS else DiskFormat.QCOW2
