"""What a server has on a host that was dead, on record while it is recreated on another one."""

from typing import Any

import nova.conf
from nova.context import get_admin_context
from nova.objects.fields import MigrationType
from nova.objects.migration import MigrationList

from millpond.hosts.host import Host
from millpond.nova.explaining import explaining
from millpond.nova.records import InstanceRecords

CONF = nova.conf.CONF


def take_back(host: Host, instance: Any) -> None:
    """What was begun here goes, and the server has what it had on the host that was dead."""
    records = InstanceRecords(instance)
    former = records.former()
    with explaining():
        for each in records.readable():
            if each.disk.role in former:
                host.disks.delete(each.disk)
    give_back(instance)


def give_back(instance: Any) -> None:
    """To the host that was dead, where its disks are: nothing came of the evacuation."""
    records = InstanceRecords(instance)
    former = records.former()
    records.put_all(former, former=dict.fromkeys(former))


def is_unsuccessful(instance: Any) -> bool:
    """Whether its last move was to be an evacuation from this host, which it did not leave."""
    found = MigrationList.get_by_filters(get_admin_context(), {"instance_uuid": instance.uuid})
    last = max(found, key=lambda each: each.id, default=None)
    return bool(
        last
        and last.migration_type == MigrationType.EVACUATION
        and last.source_compute == instance.host == CONF.host
    )
