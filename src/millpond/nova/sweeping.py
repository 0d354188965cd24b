"""Volumes that bear a server's id, whether a record names them or not."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from millpond.errors import PoolNotFound, VolumeNotFound
from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.model.names import ServerId, split_volume_name

LOG = logging.getLogger(__name__)


def pools_of_disks(host: Host) -> Iterator[LibvirtPool]:
    """Those that are configured, as they are: none is made."""
    plan = host.pool_plan
    for each in plan.all().values():
        if each != plan.base:
            with suppress(PoolNotFound):
                yield host.pools.opened(each.name)


def sweep(host: Host, server: ServerId) -> None:
    """The server is gone, or goes."""
    for pool in pools_of_disks(host):
        for volume in pool.names():
            disk = split_volume_name(volume)
            if disk and disk[0] == server:
                remove(pool, volume)


def remove(pool: LibvirtPool, volume: str) -> None:
    with suppress(VolumeNotFound):
        pool.delete(volume)
        LOG.info("removed volume %s of pool %s, which no record names", volume, pool.name)
