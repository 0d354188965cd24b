"""What a nova-compute that was killed has left, put right by the next one before it serves."""

import logging
import shutil
from pathlib import Path
from typing import Any

from nova import context
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.objects import InstanceList

from millpond.compute.single_disks import SingleDisks
from millpond.model.names import ServerId
from millpond.nova.explaining import MillpondFailed, explained
from millpond.nova.records import InstanceRecords

LOG = logging.getLogger(__name__)

_SNAPSHOT = (
    task_states.IMAGE_SNAPSHOT,
    task_states.IMAGE_SNAPSHOT_PENDING,
    task_states.IMAGE_PENDING_UPLOAD,
    task_states.IMAGE_UPLOADING,
)


def snapshots_of(host: str, directory: Path) -> Path:
    """Where this host's are made: others may share the directory above."""
    return directory / f"millpond-{host}"


def recover(disks: SingleDisks, host: str, snapshots: Path) -> None:
    admin = context.get_admin_context()
    for instance in InstanceList.get_by_host(admin, host, expected_attrs=["system_metadata"]):
        try:
            _recover(disks, admin, instance)
        except MillpondFailed as error:  # one server keeps no host from serving the others
            LOG.error("instance %s is left as it was: %s", instance.uuid, error)
    shutil.rmtree(snapshots_of(host, snapshots), ignore_errors=True)


def _recover(disks: SingleDisks, admin: Any, instance: Any) -> None:
    if instance.task_state in _SNAPSHOT:
        with explained():
            disks.stop_mirroring(ServerId(instance.uuid))
    _tell_of_unfinished_disks(admin, instance)


def _tell_of_unfinished_disks(admin: Any, instance: Any) -> None:
    """Nova puts such a server into ERROR, and does not say why."""
    with explained():
        records = InstanceRecords(instance).all()
    if unfinished := [each.disk.role for each in records if not each.made]:
        reason = f"nova-compute ended while it made {', '.join(unfinished)}: delete the server"
        compute_utils.add_instance_fault_from_exc(admin, instance, MillpondFailed(reason=reason))
