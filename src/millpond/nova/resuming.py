"""Moves that nova-compute was killed in, where Nova would leave the server as it is for ever: it
is asked for the same step again, and does it when this host serves."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import nova.conf
from nova import exception, utils
from nova.compute import task_states
from nova.context import RequestContext, get_admin_context
from nova.objects.fields import MigrationType
from nova.objects.instance import Instance, InstanceList
from nova.objects.instance_action import InstanceActionEventList, InstanceActionList
from nova.objects.migrate_data import LibvirtLiveMigrateData
from nova.objects.migration import Migration, MigrationList
from nova.objects.request_spec import RequestSpec
from nova.scheduler.client import report

from millpond.errors import Busy
from millpond.hosts.host import Host
from millpond.libvirt.migration import Place, end_job, has_moved, look
from millpond.model.names import ServerId
from millpond.nova import carrying
from millpond.nova.journey import Journey
from millpond.nova.live_moves import carry_live
from millpond.nova.peers import Peer, find_peer
from millpond.nova.records import InstanceRecords

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_ARRIVE = (task_states.RESIZE_MIGRATED, task_states.RESIZE_FINISH)
"""Nova leaves a server that has just been moved here in one of these for ever."""

_STATES = (
    *("queued", "preparing", "running", "post-migrating"),
    *("confirming", "reverting"),
)
"""Of migrations of which one end has still to do something. The request of one that is only
accepted waits in the queue."""
_ACTIONS = 20
"""The last ones of a server, newest first: somebody may have locked it, say, since it was left."""
_PATIENCE = 30
"""Seconds for libvirt to give up a migration; one by itself."""


def resume(driver: Any, manager: Any) -> frozenset[str]:
    """The servers of which Nova will do something. ``manager``: of nova-compute, which is not yet
    served any requests."""
    resumed = set()
    for migration in _unfinished():
        try:
            if _resume(driver, manager, migration):
                resumed.add(migration.instance_uuid)
        except exception.InstanceNotFound:
            LOG.debug("server %s of a migration is gone", migration.instance_uuid)
        except Exception:  # one server keeps no host from serving others
            LOG.exception("server %s is left as it was", migration.instance_uuid)
    return frozenset(resumed)


def _unfinished() -> Iterator[Any]:
    admin = get_admin_context()
    for end in ("source_compute", "dest_compute"):
        filters = {end: CONF.host, "status": list(_STATES)}
        for each in MigrationList.get_by_filters(admin, filters):
            if end == "source_compute" or each.source_compute != CONF.host:
                yield each
    reverting = {"task_state": task_states.RESIZE_REVERTING, "deleted": False}
    for instance in InstanceList.get_by_filters(admin, reverting):
        if move := instance.migration_context:
            with suppress(exception.MigrationNotFoundForInstance):
                found = Migration.get_by_id_and_instance(admin, move.migration_id, instance.uuid)
                ends = (found.source_compute, found.dest_compute)
                if found.status == "reverted" and CONF.host in ends:
                    yield found  # so Nova calls it when the destination has done most of its part


def _resume(driver: Any, manager: Any, migration: Any) -> bool:
    instance = Instance.get_by_uuid(
        get_admin_context(),
        migration.instance_uuid,
        expected_attrs=["metadata", "system_metadata", "flavor"],
    )
    if not InstanceRecords(instance).any() or migration.cross_cell_move:
        return False
    is_source, is_here = migration.source_compute == CONF.host, instance.host == CONF.host
    if migration.migration_type == MigrationType.LIVE_MIGRATION:
        if is_source and is_here and instance.task_state == task_states.MIGRATING:
            _settle_live(driver, manager, instance, migration)
        return False
    if is_source and migration.status == "confirming":
        return _again(manager.compute_rpcapi.confirm_resize, instance, migration)
    spec = RequestSpec.get_by_instance_uuid(get_admin_context(), instance.uuid)
    if instance.task_state == task_states.RESIZE_REVERTING:
        if is_source and find_interrupted(instance, "finish_revert_resize"):
            driver._destroy(instance)  # its guest may be on already; Nova starts it
            return _again(
                manager.compute_rpcapi.finish_revert_resize, instance, migration, request_spec=spec
            )
        return is_here and _again(
            manager.compute_rpcapi.revert_resize, instance, migration, request_spec=spec
        )
    if is_here and instance.task_state in _ARRIVE and find_interrupted(instance, "finish_resize"):
        driver._destroy(instance)
        instance.task_state = task_states.RESIZE_MIGRATED  # Nova begins with this one
        instance.save()
        image = utils.get_image_from_system_metadata(instance.system_metadata)
        more = {"image": image, "disk_info": "[]", "request_spec": spec}
        return _again(manager.compute_rpcapi.finish_resize, instance, migration, **more)
    return False


def _again(ask: Callable[..., Any], instance: Any, migration: Any, **more: Any) -> bool:
    """Whether it was interrupted, and is asked for once more."""
    context = find_interrupted(instance, ask.__name__)
    if context is None:
        return False
    LOG.warning("instance %s: ended in %s, which is begun again", instance.uuid, ask.__name__)
    ask(context, instance, migration, host=CONF.host, **more)
    return True


def find_interrupted(instance: Any, step: str) -> RequestContext | None:
    """As whom Nova did this when its process died; None: it did not, or its request still waits in
    the queue of this host."""
    admin = get_admin_context()
    for action in InstanceActionList.get_by_instance_uuid(admin, instance.uuid, limit=_ACTIONS):
        events = InstanceActionEventList.get_by_action(admin, action.id)
        begun = [each for each in events if each.event == f"compute_{step}"]
        if not begun:
            continue
        if max(begun, key=lambda each: each.start_time).finish_time:
            return None
        admin.request_id = action.request_id  # what is done is an event of that action
        return admin
    return None


def give_back_allocation(instance: Any, migration: Any, status: str = "error") -> None:
    """Of a move that came to nothing: what was claimed for the server where it is is the server's
    again, and what was claimed on the other host is free."""
    client, admin = report.report_client_singleton(), get_admin_context()
    if client.get_allocations_for_consumer(admin, migration.uuid):
        client.move_allocations(admin, migration.uuid, instance.uuid)
    if status:
        migration.status = status
        migration.save()


def drop_allocation(migration: Any, status: str) -> None:
    """Of a move that was done: what was claimed where the server came from is free."""
    client, admin = report.report_client_singleton(), get_admin_context()
    client.delete_allocation_for_instance(
        admin, migration.uuid, consumer_type="migration", force=True
    )
    migration.status = status
    migration.save()


def _settle_live(driver: Any, manager: Any, instance: Any, migration: Any) -> None:
    """Where its guest is, the server is. libvirt may have gone on with what its client began."""
    host, id = driver.millpond, ServerId(instance.uuid)
    peer = find_peer(host, migration.dest_compute)
    if not end_job(host.libvirtd, id, _PATIENCE):
        raise Busy(f"server {instance.uuid}")
    here, there = look(host.libvirtd, id), look(peer.libvirtd, id)
    if not has_moved(here, there):
        if here is not Place.GONE and there is Place.GONE:  # else the doctor looks there
            carrying.remove_sent(host, peer, instance)
        give_back_allocation(instance, migration, "" if migration.status == "running" else "error")
        return
    LOG.warning("instance %s: its guest has moved to host %s", instance.uuid, peer.name)
    admin = get_admin_context()
    devices = manager._get_instance_block_device_info(admin, instance)
    data = _describe_journey(host, peer, instance)
    network = instance.get_network_info()
    driver.cleanup(admin, instance, network, devices, migrate_data=data, destroy_vifs=False)
    # Afterwards the server is that host's, and nobody here would do the rest.
    manager.compute_rpcapi.post_live_migration_at_destination(admin, instance, False, peer.name)
    drop_allocation(migration, "completed")


def _describe_journey(host: Host, peer: Peer, instance: Any) -> Any:
    """Nova had this while the server moved."""
    disks = [each.disk for each in InstanceRecords(instance).all()]
    carried = map(carry_live, carrying.choose(host, peer, instance, disks, saves=False))
    journey = Journey(host=peer.name, ways={each.here.role: each.way for each in carried})
    return LibvirtLiveMigrateData(
        image_type=msgspec.json.encode(journey).decode(),
        is_shared_block_storage=not any(map(journey.carries, journey.ways)),
        is_shared_instance_path=False,
    )
