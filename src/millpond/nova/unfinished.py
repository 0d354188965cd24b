"""Rescues, shelvings and evacuations that nova-compute was killed in, where Nova would leave the
server as it is for ever: they are rolled back, or begun again. Other moves are in resuming.py."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import nova.conf
from nova import exception, objects
from nova.compute import power_state, task_states, vm_states
from nova.compute import utils as compute_utils
from nova.context import get_admin_context
from nova.objects.fields import MigrationType
from nova.objects.instance import Instance, InstanceList
from nova.objects.migration import MigrationList
from nova.scheduler.client import report
from nova.virt.libvirt import utils as libvirt_utils

from millpond.nova.explaining import MillpondFailed
from millpond.nova.former import take_back
from millpond.nova.resuming import find_interrupted

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_RESCUES = (task_states.RESCUING, task_states.UNRESCUING)
_SHELVES = (
    task_states.SHELVING,
    task_states.SHELVING_IMAGE_PENDING_UPLOAD,
    task_states.SHELVING_IMAGE_UPLOADING,
)
_REBUILDS = (
    task_states.REBUILDING,
    task_states.REBUILD_BLOCK_DEVICE_MAPPING,
    task_states.REBUILD_SPAWNING,
)
_RUN = (vm_states.ACTIVE, vm_states.PAUSED, vm_states.RESCUED)


def settle_unfinished(driver: Any, manager: Any) -> frozenset[str]:
    """The servers that it has settled. ``manager``: of nova-compute, which is not yet served any
    requests."""
    settled = set()
    wanted = ["system_metadata", "metadata", "flavor"]
    for instance in InstanceList.get_by_host(get_admin_context(), CONF.host, wanted):
        try:
            if _settle(driver, manager, instance):
                settled.add(instance.uuid)
        except exception.InstanceNotFound:
            LOG.debug("server %s is gone", instance.uuid)
        except Exception:  # one server keeps no host from serving others
            LOG.exception("server %s is left as it was", instance.uuid)
    for migration in _evacuations():
        with suppress(exception.InstanceNotFound):
            _give_up_evacuation(driver, migration)
    return frozenset(settled)


def _evacuations() -> Any:
    filters = {
        "dest_compute": CONF.host,
        "migration_type": MigrationType.EVACUATION,
        "status": ["accepted", "pre-migrating"],
    }
    return MigrationList.get_by_filters(get_admin_context(), filters)


def _settle(driver: Any, manager: Any, instance: Any) -> bool:
    step = instance.task_state
    if step in _RESCUES:
        _remove_rescue(driver, instance)
        _go_back(instance, is_off=True)
    elif step in _SHELVES:
        _go_back(instance, is_off=manager._get_power_state(instance) != power_state.RUNNING)
    elif step == task_states.SHELVING_OFFLOADING:
        _offload_again(manager, instance)
    elif step == task_states.SPAWNING and instance.vm_state == vm_states.SHELVED_OFFLOADED:
        _shelve_again(driver, manager, instance)
    else:
        return False
    LOG.warning(
        "instance %s: nova-compute ended at the step %r, which is undone", instance.uuid, step
    )
    return True


def _remove_rescue(driver: Any, instance: Any) -> None:
    driver._delete_disks(instance, ".rescue")
    place = Path(libvirt_utils.get_instance_path(instance))
    for each in (*place.glob("*.rescue"), place / "unrescue.xml"):
        each.unlink(missing_ok=True)


def _go_back(instance: Any, *, is_off: bool) -> None:
    """Nova reboots what ran as soon as it serves, with the server's own disks."""
    instance.task_state = None
    if is_off and instance.vm_state in _RUN:
        instance.vm_state = vm_states.ACTIVE
        instance.task_state = task_states.REBOOT_PENDING_HARD
    instance.save()


def _offload_again(manager: Any, instance: Any) -> None:
    """The image of the server is complete, and of its disks some may be gone."""
    context = (
        find_interrupted(instance, "shelve_instance")
        or find_interrupted(instance, "shelve_offload_instance")
        or get_admin_context()
    )
    manager.compute_rpcapi.shelve_offload_instance(context, instance, clean_shutdown=False)


def _shelve_again(driver: Any, manager: Any, instance: Any) -> None:
    """Its image is all that there is of it. As Nova undoes an unshelving that failed."""
    admin = get_admin_context()
    disks = objects.BlockDeviceMappingList.get_by_instance_uuid(admin, instance.uuid)
    devices = manager._get_instance_block_device_info(admin, instance, bdms=disks)
    driver.destroy(admin, instance, instance.get_network_info(), devices)
    manager._terminate_volume_connections(admin, instance, disks)
    client = report.report_client_singleton()
    client.delete_allocation_for_instance(admin, instance.uuid, force=True)
    if shelved := instance.system_metadata.get("shelved_image_id"):
        first = instance.system_metadata.get("image_base_image_ref")
        instance.image_ref = first if instance.image_ref == shelved else instance.image_ref
    manager._nil_out_instance_obj_host_and_node(instance)
    instance.task_state = None
    instance.save()


def _give_up_evacuation(driver: Any, migration: Any) -> None:
    """To this host. Whoever evacuates the server once more begins again."""
    admin = get_admin_context()
    wanted = ["system_metadata", "flavor"]
    instance = Instance.get_by_uuid(admin, migration.instance_uuid, wanted)
    step = instance.task_state
    is_begun = step in _REBUILDS and find_interrupted(instance, "rebuild_instance")
    if instance.host == CONF.host or not is_begun:
        return
    driver._destroy(instance)
    driver._undefine_domain(instance)
    take_back(driver.millpond, instance)
    client = report.report_client_singleton()
    for node in objects.ComputeNodeList.get_all_by_host(admin, CONF.host):
        client.remove_provider_tree_from_instance_allocation(admin, instance.uuid, node.uuid)
    reason = (
        f"nova-compute on host {CONF.host!r} ended at the step {step!r}: the server has the disks "
        f"that it had on host {instance.host!r}; evacuate it once more, or start that host"
    )
    LOG.warning("instance %s: %s", instance.uuid, reason)
    compute_utils.add_instance_fault_from_exc(admin, instance, MillpondFailed(reason=reason))
    migration.status = "failed"
    migration.save()
    instance.vm_state, instance.task_state = vm_states.ERROR, None
    instance.save()
