"""How much space the pools of a host's disks have, each file system counted once."""

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress

from millpond.errors import PoolNotFound
from millpond.libvirt.pool import PoolType
from millpond.libvirt.pools import Pools
from millpond.model.server import Server
from millpond.model.volume import PoolUsage


def space(pools: Pools, names: Iterable[str]) -> PoolUsage:
    """Together. Directory pools of one file system share its space."""
    usages = {name: pools.ensure(name).usage() for name in names}  # made where they are missing
    found = {_place(pools, name): usage for name, usage in usages.items()}
    return PoolUsage(
        capacity=sum(each.capacity for each in found.values()),
        allocation=sum(each.allocation for each in found.values()),
        available=sum(each.available for each in found.values()),
    )


def sum_promised(pools: Pools, servers: Sequence[Server]) -> int:
    """What the disks of these servers may still come to occupy."""
    ours = {(disk.pool, disk.volume) for server in servers for disk in server.disks}
    return sum(_promised(pools, ours))


def _promised(pools: Pools, ours: set[tuple[str, str]]) -> Iterator[int]:
    for name in sorted({pool for pool, _ in ours}):
        with suppress(PoolNotFound):
            for volume in pools.open(name).volumes():
                if (name, volume.name) in ours:
                    yield max(0, volume.capacity - volume.allocation)


def _place(pools: Pools, name: str) -> Hashable:
    wanted = pools.plan.all()[name]
    return os.stat(wanted.path).st_dev if wanted.type is PoolType.DIR else name
