"""What a nova-compute that was killed has left, repaired by the next one before it serves."""

import logging
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nova import context, exception
from nova.compute import task_states, vm_states
from nova.compute import utils as compute_utils
from nova.objects.instance import InstanceList

from millpond.disks.disks import Disks
from millpond.disks.imaging import Imaging
from millpond.errors import MillpondError, PoolNotFound, VolumeNotFound
from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.model.names import ServerId, split_volume_name
from millpond.nova.explaining import MillpondFailed, explaining
from millpond.nova.former import give_back, is_unsuccessful
from millpond.nova.records import InstanceRecords
from millpond.nova.transition import settle
from millpond.nova.transition_journal import is_begun

LOG = logging.getLogger(__name__)

SNAPSHOT = (
    task_states.IMAGE_SNAPSHOT,
    task_states.IMAGE_SNAPSHOT_PENDING,
    task_states.IMAGE_PENDING_UPLOAD,
    task_states.IMAGE_UPLOADING,
)
_MAKE = (
    task_states.SCHEDULING,
    task_states.BLOCK_DEVICE_MAPPING,
    task_states.NETWORKING,
    task_states.SPAWNING,
    task_states.REBUILDING,
    task_states.REBUILD_BLOCK_DEVICE_MAPPING,
    task_states.REBUILD_SPAWNING,
)
"""Nova puts a server that it finds in one of these into ERROR, and does not say why."""


def snapshots_of(host: str, directory: Path) -> Path:
    """Where this host's are made: others may share the directory above."""
    return directory / f"millpond-{host}"


def recover(host: Host, name: str, snapshots: Path, resumed: Collection[str] = ()) -> None:
    """``name``: as Nova knows the host. ``resumed``: servers that Nova does something with as soon
    as it serves."""
    admin = context.get_admin_context()
    for instance in InstanceList.get_by_host(admin, name, expected_attrs=["system_metadata"]):
        try:
            _recover(host, admin, instance, instance.uuid in resumed)
        except exception.NovaException as error:  # one server keeps no host from serving others
            LOG.error("instance %s is left as it was: %s", instance.uuid, error)
    with explaining():
        _remove_snapshots(host.imaging, snapshots_of(name, snapshots))


def _remove_snapshots(imaging: Imaging, place: Path) -> None:
    """But for those that a disk is still copied to: QEMU would go on to fill a file without a
    name. The doctor ends such a copy."""
    written = imaging.files()
    for directory in place.glob("*"):
        if not any(each.is_relative_to(directory) for each in written):
            shutil.rmtree(directory, ignore_errors=True)


def remove_unfinished(disks: Disks, records: InstanceRecords) -> list[str]:
    """Nothing of the user's is on a disk that was never finished. The volume goes first: as long
    as it may be there, its record is."""
    unfinished = [each.disk for each in records.all() if not each.made]
    for disk in unfinished:
        disks.delete(disk)
        records.remove(disk.role)
        LOG.info("removed %s, which was never finished", disk.location)
    return [disk.role for disk in unfinished]


def _recover(host: Host, admin: Any, instance: Any, is_resumed: bool) -> None:
    if instance.task_state == task_states.DELETING:
        return  # Nova goes on with it
    if is_begun(instance):
        with explaining():
            settle(host, instance)
    records = InstanceRecords(instance)
    if records.former() and is_unsuccessful(instance):
        give_back(instance)
    if instance.task_state in SNAPSHOT:
        with explaining():
            disks = [each.disk for each in records.all()]
            host.imaging.stop(ServerId(instance.uuid), disks)
    found = _remove_unfinished(host.disks, records)
    if is_resumed:
        return
    if found or instance.vm_state == vm_states.BUILDING or instance.task_state in _MAKE:
        step = instance.task_state or instance.vm_state
        what = found or _as_it_is(records)
        reason = f"nova-compute ended at the step {step!r}: {what}; {advice(instance)}"
        LOG.warning("instance %s: %s", instance.uuid, reason)
        compute_utils.add_instance_fault_from_exc(admin, instance, MillpondFailed(reason=reason))
    elif instance.task_state == task_states.RESIZE_FINISH and records.any():
        _give_up_arrival(admin, instance)


def _give_up_arrival(admin: Any, instance: Any) -> None:
    """Its disks are here and whole: they were compared before Nova came to this."""
    reason = (
        f"nova-compute ended at the step {instance.task_state!r}: the disks are on host "
        f"{instance.host!r} and whole; set the server's state to active and reboot it hard, then "
        "'millpond-nova-doctor --repair' on the host that it came from removes what is left there"
    )
    LOG.warning("instance %s: %s", instance.uuid, reason)
    compute_utils.add_instance_fault_from_exc(admin, instance, MillpondFailed(reason=reason))
    instance.vm_state, instance.task_state = vm_states.ERROR, None
    instance.save()


def _remove_unfinished(disks: Disks, records: InstanceRecords) -> str:
    """What became of disks that were not finished, in words."""
    try:
        removed = remove_unfinished(disks, records)
    except MillpondError as error:
        return f"a disk is unfinished, see millpond-nova-doctor: {error}"
    if not removed:
        return ""
    return f"disk {_listed(removed)} was unfinished and is removed"


def _as_it_is(records: InstanceRecords) -> str:
    made = [each.disk.role for each in records.all()]
    return f"disk {_listed(made)} is complete" if made else "no disk was begun"


def advice(instance: Any) -> str:
    """Nova does nothing with a server that never ran, but delete it."""
    return "rebuild or delete the server" if instance.launched_at else "delete the server"


def _listed(roles: list[str]) -> str:
    return ", ".join(map(repr, roles))


def pools_of_disks(host: Host) -> Iterator[LibvirtPool]:
    """Those that are configured, as they are: none is made."""
    plan = host.pool_plan
    for each in plan.all().values():
        if each != plan.base:
            with suppress(PoolNotFound):
                yield host.pools.open(each.name)


def remove_volumes(host: Host, server: ServerId) -> None:
    """All that bear its name. The server is gone, or goes."""
    for pool in pools_of_disks(host):
        for volume in pool.names():
            disk = split_volume_name(volume)
            if disk and disk[0] == server:
                remove(pool, volume)


def remove(pool: LibvirtPool, volume: str) -> None:
    with suppress(VolumeNotFound):
        pool.delete(volume)
        LOG.info("removed volume %s of pool %s, which no record names", volume, pool.name)
