"""What a nova-compute that was killed has left, put right by the next one before it serves."""

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

_SNAPSHOT = (
    task_states.IMAGE_SNAPSHOT,
    task_states.IMAGE_SNAPSHOT_PENDING,
    task_states.IMAGE_PENDING_UPLOAD,
    task_states.IMAGE_UPLOADING,
)


def snapshot_prefix(host: str) -> str:
    """Of the directories that snapshots are made in: others may share the one above."""
    return f"millpond-{host}-"


def recover(disks: SingleDisks, host: str, snapshots: Path) -> None:
    admin = context.get_admin_context()
    for instance in InstanceList.get_by_host(admin, host, expected_attrs=["system_metadata"]):
        if instance.task_state in _SNAPSHOT:
            with explained():
                disks.stop_mirroring(ServerId(instance.uuid))
        _tell_of_unfinished_disks(admin, instance)
    for left in snapshots.glob(f"{snapshot_prefix(host)}*"):
        shutil.rmtree(left)


def _tell_of_unfinished_disks(admin: Any, instance: Any) -> None:
    """Nova puts such a server into ERROR, and does not say why."""
    with explained():
        records = InstanceRecords(instance).all()
    if unfinished := [each.disk.role for each in records if not each.made]:
        reason = f"nova-compute ended while it made {', '.join(unfinished)}: delete the server"
        compute_utils.add_instance_fault_from_exc(admin, instance, MillpondFailed(reason=reason))
