"""The moves of servers between hosts that Nova's libvirt driver has, and ours refuses."""

from typing import Any

from nova import exception
from nova.compute import task_states
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.hosts.host import Host
from millpond.nova.records import InstanceRecords

_NOT_YET = "Millpond does not move the disks of servers between hosts yet"
_NO_FILES = "the host keeps no disks outside of storage pools (images_type = libvirt-storage)"


class RefusesMoves(LibvirtDriver):
    """Servers without disks of ours move as ever. Each is refused as early as Nova asks."""

    @property
    def millpond(self) -> Host:
        raise NotImplementedError

    def instance_on_disk(self, instance: Any) -> bool:
        """Nova asks this first of all, when a server is evacuated to this host."""
        if InstanceRecords(instance).any() or _has_local_disks(instance):
            error = exception.InstanceEvacuateNotSupported(_NOT_YET)
            raise exception.InstanceFaultRollback(inner_exception=error)
        return bool(super().instance_on_disk(instance))

    def migrate_disk_and_power_off(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        refuse_resize(instance)
        return super().migrate_disk_and_power_off(context, instance, *args, **kw)

    def power_off(self, instance: Any, *args: Any, **kw: Any) -> None:
        """What a resize into another cell begins with: it never asks for the disks."""
        if instance.task_state == task_states.RESIZE_MIGRATING:
            refuse_resize(instance)
        super().power_off(instance, *args, **kw)

    def check_can_live_migrate_destination(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        """After MigrationPreCheckError Nova would ask other hosts, and not say why none will."""
        if InstanceRecords(instance).any():
            raise exception.NoValidHost(reason=_NOT_YET)
        if self._pools_only and _has_local_disks(instance):
            raise exception.MigrationPreCheckError(reason=_NO_FILES)
        return super().check_can_live_migrate_destination(context, instance, *args, **kw)

    def check_can_live_migrate_source(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        """The destination may have Nova's own driver, which does not know our disks."""
        if InstanceRecords(instance).any():
            raise exception.MigrationPreCheckError(reason=_NOT_YET)
        return super().check_can_live_migrate_source(context, instance, *args, **kw)

    @property
    def _pools_only(self) -> bool:
        return self.millpond.settings.libvirt.selection.images_type.pools_only


def refuse_resize(instance: Any) -> None:
    if InstanceRecords(instance).any():
        error = exception.ResizeError(reason=_NOT_YET)
        raise exception.InstanceFaultRollback(inner_exception=error)


def _has_local_disks(instance: Any) -> bool:
    """Besides a config drive, which is made again wherever it is needed."""
    flavor = instance.flavor
    return bool(instance.image_ref or flavor.ephemeral_gb or flavor.swap)
