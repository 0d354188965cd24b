"""Which hosts share a pool: proven by a volume that one makes and the others see (B32)."""

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress

from millpond.errors import MillpondError, VolumeNotFound
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec

LOG = logging.getLogger(__name__)

_PREFIX = "millpond-shared-"


def sharers(pools: Mapping[str, Pool], owner: str) -> list[frozenset[str]]:
    """The hosts in groups of those whose pool is the same; one that shares with none is left out.

    The caller holds a lock: a mark of this owner that is there already was left by a crash.
    """
    groups = []
    left = dict(pools)
    while len(left) > 1:
        first = next(iter(left))
        pool = left.pop(first)
        group = frozenset({first, *_who_see(pool, left, f"{_PREFIX}{owner}-")})
        left = {host: each for host, each in left.items() if host not in group}
        if len(group) > 1:
            groups.append(group)
    return groups


def is_sharing_probe(volume: str) -> bool:
    return volume.startswith(_PREFIX)


def _who_see(pool: Pool, others: Mapping[str, Pool], prefix: str) -> list[str]:
    _cleanup(pool, prefix)
    name = f"{prefix}{uuid.uuid4()}"
    pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=MiB))
    try:
        return [host for host, other in others.items() if _sees(host, other, name)]
    finally:
        pool.delete(name)


def _sees(host: str, pool: Pool, name: str) -> bool:
    """A pool that cannot be looked at is not known to be shared."""
    try:
        pool.refresh()
        return pool.find(name) is not None
    except MillpondError as error:
        LOG.warning("whether host %s shares pool %s is not known: %s", host, pool.name, error)
        return False


def _cleanup(pool: Pool, prefix: str) -> None:
    for volume in pool.volumes():
        if volume.name.startswith(prefix):
            with suppress(VolumeNotFound):
                pool.delete(volume.name)
