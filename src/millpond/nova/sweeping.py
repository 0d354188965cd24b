"""Volumes that bear a server's id, whether a record names them or not."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from millpond.engine import Engine
from millpond.errors import PoolNotFound, VolumeNotFound
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.model.names import ServerId, split_volume_name

LOG = logging.getLogger(__name__)


def pools_of_disks(engine: Engine) -> Iterator[LibvirtPool]:
    """Those that are configured, as they are: none is made."""
    plan = engine.pool_plan
    for each in plan.all().values():
        if each != plan.base:
            with suppress(PoolNotFound):
                yield engine.pools.opened(each.name)


def sweep(engine: Engine, server: ServerId) -> None:
    """The server is gone, or goes."""
    for pool in pools_of_disks(engine):
        for volume in pool.names():
            disk = split_volume_name(volume)
            if disk and disk[0] == server:
                remove(pool, volume)


def remove(pool: LibvirtPool, volume: str) -> None:
    with suppress(VolumeNotFound):
        pool.delete(volume)
        LOG.info("removed volume %s of pool %s, which no record names", volume, pool.name)
