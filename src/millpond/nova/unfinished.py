"""Rescues and shelvings that nova-compute was killed in, where Nova would leave the server as it
is for ever: they are rolled back, or begun again. Moves are in resuming.py."""

import logging
from pathlib import Path
from typing import Any

import nova.conf
from nova import exception, objects
from nova.compute import power_state, task_states, vm_states
from nova.context import get_admin_context
from nova.objects.instance import InstanceList
from nova.scheduler.client import report
from nova.virt.libvirt import utils as libvirt_utils

from millpond.nova.resuming import find_interrupted

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_RESCUES = (task_states.RESCUING, task_states.UNRESCUING)
_SHELVES = (
    task_states.SHELVING,
    task_states.SHELVING_IMAGE_PENDING_UPLOAD,
    task_states.SHELVING_IMAGE_UPLOADING,
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
    return frozenset(settled)


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
