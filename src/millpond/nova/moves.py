"""Resizing and moving servers that are off: what Nova's own driver does with files and ssh, with
volumes and libvirt's connections (docs/decisions/0034)."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nova.conf
from nova import exception
from nova.compute import power_state, task_states
from nova.context import get_admin_context
from nova.objects.fields import MigrationType
from nova.objects.migration import Migration
from nova.virt import driver as virt_driver
from nova.virt import hardware
from nova.virt.libvirt import utils as libvirt_utils
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.errors import MillpondError, UnfitHost, Unsupported, VolumeNotFound
from millpond.hosts.host import Host
from millpond.model.server import Disk
from millpond.model.sizes import MiB
from millpond.nova import carrying, transition
from millpond.nova.advice import explain
from millpond.nova.carrying import Carried
from millpond.nova.encryption import refuse_encryption
from millpond.nova.explaining import explaining, staying_as_it_was
from millpond.nova.images import PoolBackend, fetch_base, refuse_untrusted, trusted_by
from millpond.nova.peers import Peer, find_peer, is_proven_apart
from millpond.nova.records import InstanceRecords
from millpond.nova.resuming import give_back_allocation
from millpond.system import files

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_RUNNING = (power_state.RUNNING, power_state.PAUSED)
_SWAP = "disk.swap"
_CELLS = "Millpond does not move disks into another cell"


class ResizesServers(LibvirtDriver):
    """Servers without disks of ours are moved by Nova's own code."""

    @property
    def millpond(self) -> Host:
        raise NotImplementedError

    @property
    def image_backend(self) -> PoolBackend:
        raise NotImplementedError

    def migrate_disk_and_power_off(
        self,
        context: Any,
        instance: Any,
        dest: str,
        flavor: Any,
        network_info: Any,
        block_device_info: Any = None,
        timeout: int = 0,
        retry_interval: int = 0,
    ) -> Any:
        """Refused while the server is as it was. What fails later is undone, and it runs on."""
        with staying_as_it_was():
            refuse_encryption(instance.image_meta, flavor, block_device_info)
        with _rolling_back(), self._running_on(context, instance, network_info, block_device_info):
            if not InstanceRecords(instance).any() and self._comes_into_pools(instance):
                super().power_off(instance, timeout, retry_interval)
                transition.bring_into_pools(self.millpond, instance)
        if not InstanceRecords(instance).any():
            return super().migrate_disk_and_power_off(
                context,
                instance,
                dest,
                flavor,
                network_info,
                block_device_info,
                timeout,
                retry_interval,
            )
        with _rolling_back(), self._running_on(context, instance, network_info, block_device_info):
            _refuse_smaller(instance, flavor, block_device_info)
            refuse_untrusted(self.millpond.disks, instance)
            peer, carried = self._plan_move(instance)
            super().power_off(instance, timeout, retry_interval)
            self.unplug_vifs(instance, network_info)
            for each in virt_driver.block_device_info_get_mapping(block_device_info):
                self._disconnect_volume(context, each["connection_info"], instance)
            try:
                self._carry(instance, peer, carried)
            except BaseException:
                carrying.remove_copies(self.millpond, peer, carried)
                raise
        return "[]"

    def _comes_into_pools(self, instance: Any) -> bool:
        """A server that Nova's own driver made here, if the destination takes disks from pools. To
        any other one Nova moves its files."""
        destination = _migration_of(instance).dest_compute
        if destination != CONF.host:
            try:
                find_peer(self.millpond, destination)
            except UnfitHost:
                return False
        return transition.is_concerned(self.millpond, instance)

    @contextmanager
    def _running_on(self, context: Any, instance: Any, *devices: Any) -> Iterator[None]:
        """A server that ran does so afterwards, if the block fails."""
        ran = instance.power_state in _RUNNING
        try:
            yield
        except BaseException:
            if ran and self.get_info(instance).state not in _RUNNING:
                self.power_on(context, instance, *devices)
            raise

    def _plan_move(self, instance: Any) -> tuple[Peer | None, list[Carried]]:
        migration = _migration_of(instance)
        is_here = migration.dest_compute == CONF.host
        if not is_here and hardware.get_vtpm_constraint(instance.flavor, instance.image_meta):
            reason = "the state of its TPM is in a file of its host"
            raise Unsupported(f"moving server {instance.uuid}", reason, "resize it where it is")
        peer = None if is_here else find_peer(self.millpond, migration.dest_compute)
        disks = [each.disk for each in InstanceRecords(instance).all()]
        saves = migration.migration_type == MigrationType.RESIZE
        return peer, carrying.plan(self.millpond, peer, instance, disks, saves=saves)

    def _carry(self, instance: Any, peer: Peer | None, carried: list[Carried]) -> None:
        """The records change when everything has arrived, in one write: whoever finds them is not
        told of half a disk. Then the directory makes room for another one, as Nova does it."""
        carrying.carry(self.millpond, peer, carried)
        InstanceRecords(instance).put_all(*carrying.records_of(carried))
        place = Path(libvirt_utils.get_instance_path(instance))
        aside = place.with_name(f"{place.name}_resize")
        shutil.rmtree(aside, ignore_errors=True)
        with suppress(FileNotFoundError):
            place.rename(aside)
        if peer is None:
            place.mkdir()
            for name in ("kernel", "ramdisk"):  # the image that they came from may be gone
                with suppress(FileNotFoundError):
                    shutil.copy2(aside / name, place / name)

    def finish_migration(
        self, context: Any, migration: Any, instance: Any, *args: Any, **kw: Any
    ) -> None:
        records = InstanceRecords(instance)
        records.refresh()
        if not records.any():
            super().finish_migration(context, migration, instance, *args, **kw)
            return
        with explaining():
            stays = migration.source_compute == migration.dest_compute
            self._prepare_arrived(instance, stays=stays)
        with self.image_backend.making(instance, but=_roles(records)):
            super().finish_migration(context, migration, instance, *args, **kw)

    def _prepare_arrived(self, instance: Any, *, stays: bool) -> None:
        """What the disks are backed by, and swap of the size that the flavor has now."""
        self._drop_swap(instance)
        for record in InstanceRecords(instance).all():
            disk = record.disk
            trusted = () if stays else trusted_by(instance)  # it was proven when that was made
            fetch_base(self.millpond.disks, disk, instance.image_ref, trusted)
            pool = self.millpond.pools.ensure(disk.pool)
            pool.refresh()
            volume = pool.find(disk.volume)
            if volume is None:
                raise VolumeNotFound(disk.pool, disk.volume)
            if os.path.exists(volume.path):  # it came over the network, and is all that there is
                files.sync_path(Path(volume.path))

    def _drop_swap(self, instance: Any) -> None:
        """One of another size, or that is not here, is made again."""
        records, wanted = InstanceRecords(instance), instance.flavor.swap * MiB
        record = records.find(_SWAP)
        if record and (record.disk.size != wanted or not self.millpond.disks.exists(record.disk)):
            self.millpond.disks.delete(record.disk)
            records.put_all({_SWAP: None})

    def finish_revert_migration(
        self, context: Any, instance: Any, network_info: Any, migration: Any, *a: Any, **kw: Any
    ) -> None:
        """Also of one that nova-compute was killed in, wherever that was."""
        records = InstanceRecords(instance)
        records.refresh()
        if records.any() or records.former():
            with explaining():
                if instance.task_state == task_states.RESIZE_MIGRATING:
                    self._remove_sent(instance, migration)
                self._restore(records)
                self._drop_swap(instance)
            self._make_swap(context, instance)
        if instance.task_state == task_states.RESIZE_MIGRATING:
            give_back_allocation(instance, migration)
        with _knowing_its_flavors(instance):
            super().finish_revert_migration(context, instance, network_info, migration, *a, **kw)

    def _restore(self, records: InstanceRecords) -> None:
        """What it had before takes its place again; the other one goes, if it is here."""
        for role, former in records.former().items():
            present = records.find(role)
            if not former.made:
                self.millpond.disks.delete(former.disk)
                records.put_all({}, {role: None})
                continue
            if present and present.disk.volume != former.disk.volume:
                self.millpond.disks.delete(present.disk)
            records.put_all({role: former}, {role: None})

    def _make_swap(self, context: Any, instance: Any) -> None:
        """Of the flavor that it has again; Nova makes no disks when it reverts."""
        size = instance.flavor.swap
        if size and not InstanceRecords(instance).has(_SWAP):
            with self.image_backend.making(instance):
                image = self.image_backend.by_name(instance, _SWAP)
                image.cache(context=context, size=size * MiB, swap_mb=size)

    def _remove_sent(self, instance: Any, migration: Any) -> None:
        """Of a move that came to nothing: copies next to the disks, and on the host that it went
        to."""
        records = InstanceRecords(instance)
        former, present = records.former(), [each.disk for each in records.all()]
        for disk in present:
            if disk.role not in former:
                self.millpond.disks.delete(carrying.with_other_name(disk))
        if migration.dest_compute == CONF.host:
            return
        try:
            peer = find_peer(self.millpond, migration.dest_compute)
            carrying.remove_sent(self.millpond, peer, instance)
        except MillpondError as error:
            LOG.warning("copies may be left on host %s: %s", migration.dest_compute, error)

    def confirm_migration(
        self, context: Any, migration: Any, instance: Any, network_info: Any
    ) -> None:
        super().confirm_migration(context, migration, instance, network_info)
        records = InstanceRecords(instance)
        records.refresh()
        with explaining():
            for role, former in records.former().items():
                if self._is_another(instance, former.disk, migration.dest_compute):
                    self.millpond.disks.delete(former.disk)
                records.put_all({}, {role: None})

    def _is_another(self, instance: Any, disk: Disk, host: str) -> bool:
        """Than the server has now, on this or that host."""
        present = InstanceRecords(instance).find(disk.role)
        if present is None or present.disk.volume != disk.volume:
            return True
        if host == CONF.host:
            return False
        apart = is_proven_apart(self.millpond, host, disk.pool, instance.uuid)
        if not apart:
            LOG.warning("%s stays: whether host %s uses it is not known", disk.location, host)
        return apart

    def delete_reverted(self, instance: Any) -> None:
        """On the host that a server was moved to and leaves again. The records are for the one
        that it came from."""
        records, source = InstanceRecords(instance), _migration_of(instance).source_compute
        if source == CONF.host:
            return
        with explaining():
            for role, former in records.former().items():
                present = records.find(role)
                disk = present.disk if present else former.disk
                if disk.volume == former.disk.volume and is_proven_apart(
                    self.millpond, source, disk.pool, instance.uuid
                ):
                    self.millpond.disks.delete(disk)

    def power_off(self, instance: Any, *args: Any, **kw: Any) -> None:
        """What a resize into another cell begins with: it never asks for the disks."""
        if instance.task_state == task_states.RESIZE_MIGRATING:
            refuse_other_cell(instance)
        super().power_off(instance, *args, **kw)


def refuse_other_cell(instance: Any) -> None:
    if InstanceRecords(instance).any():
        error = exception.ResizeError(reason=_CELLS)
        raise exception.InstanceFaultRollback(inner_exception=error)


def is_reverting(instance: Any) -> bool:
    return bool(instance.task_state == task_states.RESIZE_REVERTING)


def _roles(records: InstanceRecords) -> frozenset[str]:
    """Which are there, or have to be: the root disk of a server that moves is never recreated."""
    return frozenset({"disk", *(each.disk.role for each in records.all())})


def _migration_of(instance: Any) -> Any:
    found = instance.migration_context.migration_id
    return Migration.get_by_id_and_instance(get_admin_context(), found, instance.uuid)


@contextmanager
def _knowing_its_flavors(instance: Any) -> Iterator[None]:
    """Nova notes the flavor that a server had once its disks were sent, and wants it here, too,
    where that was interrupted."""
    is_unknown = instance.old_flavor is None
    if is_unknown:
        instance.old_flavor = instance.flavor
    try:
        yield
    finally:
        if is_unknown:
            instance.old_flavor = None


def _refuse_smaller(instance: Any, flavor: Any, block_device_info: Any) -> None:
    """As Nova does it."""
    ephemerals = virt_driver.block_device_info_get_ephemerals(block_device_info)
    ephemeral = sum(each["size"] for each in ephemerals) or instance.flavor.ephemeral_gb
    if flavor.root_gb < instance.flavor.root_gb and InstanceRecords(instance).has("disk"):
        raise Unsupported("a smaller root disk", "its end would be cut off", "choose a larger one")
    if flavor.ephemeral_gb < ephemeral:
        raise Unsupported("smaller ephemeral disks", "their end would be cut off")


@contextmanager
def _rolling_back() -> Iterator[None]:
    """The server is as it was before."""
    try:
        yield
    except MillpondError as error:
        failed = exception.ResizeError(reason=explain(error))
        raise exception.InstanceFaultRollback(inner_exception=failed) from error
