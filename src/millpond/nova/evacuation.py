"""Servers of a host that is dead: whether this one has their disks. Nobody can ask that one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import nova.conf
from nova import exception
from nova.compute import task_states
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.errors import MillpondError, PoolNotFound
from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.pool import PoolType
from millpond.libvirt.sharing import host_mark
from millpond.model.formats import DiskFormat
from millpond.model.server import Content, Disk
from millpond.model.volume import VolumeSpec
from millpond.nova import carrying
from millpond.nova.explaining import explaining
from millpond.nova.former import take_back
from millpond.nova.live_moves import has_local_disks
from millpond.nova.records import InstanceRecords
from millpond.nova.short_records import DiskRecord

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


class SavesServers(LibvirtDriver):
    @property
    def millpond(self) -> Host:
        raise NotImplementedError

    def instance_on_disk(self, instance: Any) -> bool:
        """Nova asks this first of all when a server is evacuated to this host. Without its disks
        it is recreated from its image, as Nova's own driver does it."""
        records = InstanceRecords(instance)
        if not records.any():
            is_here = bool(super().instance_on_disk(instance))
            if is_here and has_local_disks(instance):  # a new disk would take the place of those
                error = exception.InstanceEvacuateNotSupported(_LEGACY)
                raise exception.InstanceFaultRollback(inner_exception=error)
            return is_here
        with explaining():
            needed = [each.disk for each in records.all() if each.disk.content not in _REMADE]
            are_here = all(has_disk_of(self.millpond, instance.host, each) for each in needed)
            for disk in needed if are_here else ():
                if disk.overlay and not carrying.has_image(self.millpond, instance, disk):
                    error = exception.InstanceEvacuateNotSupported(_BASE.format(disk.role))
                    raise exception.InstanceFaultRollback(inner_exception=error)
            return are_here


_LEGACY = "Millpond does not evacuate servers whose disks lie in Nova's legacy layout"
_BASE = "what {} is backed by was on its host alone: this one would give it another base"
_REMADE = (Content.SWAP, Content.CONFIG)


@contextmanager
def recreating(host: Host, instance: Any) -> Iterator[None]:
    """While a server of a dead host may be recreated from its image. Until that is done, what it
    has over there is on record, too: this may fail, and that host may come back."""
    records = InstanceRecords(instance)
    lost = dict(_lost(host, instance, records))
    if not lost:
        yield
        return
    records.put_all(dict.fromkeys(lost), former=lost)
    try:
        yield
    except BaseException:
        take_back(host, instance)
        raise
    records.put_all({}, former=dict.fromkeys(lost))


def _lost(host: Host, instance: Any, records: InstanceRecords) -> Iterator[tuple[str, DiskRecord]]:
    """By role."""
    is_evacuated = instance.task_state == task_states.REBUILD_SPAWNING
    if is_evacuated and instance.host not in (None, CONF.host) and not records.former():
        for each in records.all():
            if _is_apart(host, instance.host, each.disk):
                yield each.disk.role, each


def _is_apart(host: Host, other: str, disk: Disk) -> bool:
    """Whatever is made here, it does not touch that one."""
    try:
        return not is_shared_with(host, other, disk.pool)
    except PoolNotFound:
        return True


def mark_pools(host: Host) -> None:
    """With the name of this host, for those that share them: once it is dead, that is the proof.
    A pool that is full or unusable is no reason not to serve."""
    for wanted in host.pool_plan.directories():
        if wanted != host.pool_plan.base:
            try:
                _mark(host.pools.ensure(wanted.name))
            except MillpondError as error:
                LOG.warning("nobody will know that host %s had a pool: %s", CONF.host, error)


def _mark(pool: LibvirtPool) -> None:
    name = host_mark(CONF.host)
    if not pool.find(name):
        pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=0))


def is_shared_with(host: Host, other: str, name: str) -> bool:
    """Whether the pool of this name is, or was, the other host's, too."""
    pool = host.pools.ensure(name)
    wanted = host.pool_plan.find(name)
    if not pool.ceph and (wanted is None or wanted.type is not PoolType.DIR):
        return False
    pool.refresh()  # what the other host has made, libvirt does not know here
    return bool(pool.ceph) or pool.find(host_mark(other)) is not None


def has_disk_of(host: Host, other: str, disk: Disk) -> bool:
    with suppress(PoolNotFound):
        return is_shared_with(host, other, disk.pool) and host.disks.exists(disk)
    return False
