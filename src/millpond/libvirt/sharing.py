"""Which hosts share a pool: proven by a volume that one makes and the others see (B32)."""

import logging
import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from millpond.errors import MillpondError, NoSpace, VolumeNotFound
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


def are_one(one: Pool, other: Pool, owner: str) -> bool:
    """Whether two hosts have the same volumes in these pools now. Raises what cannot be known.

    Each makes a mark: whoever has made something in an NFS directory also sees what others made
    there. One alone is enough, where the other pool is full. The caller holds a lock.
    """
    prefix = f"{_PREFIX}{owner}-"
    for pool in (one, other):
        _cleanup(pool, prefix)
    with _marking(one, prefix) as first, _marking(other, prefix) as second:
        if isinstance(first, NoSpace) and isinstance(second, NoSpace):
            raise first
        return _has(other, first) or _has(one, second)


@contextmanager
def _marking(pool: Pool, prefix: str) -> Iterator[str | NoSpace]:
    name = f"{prefix}{secrets.token_hex(8)}"
    try:
        pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=MiB))
    except NoSpace as error:
        yield error
        return
    try:
        yield name
    finally:
        pool.delete(name)


def _has(pool: Pool, mark: str | NoSpace) -> bool:
    pool.refresh()
    return isinstance(mark, str) and pool.find(mark) is not None


def host_mark(host: str) -> str:
    """Of a volume that says which host has made it: whoever finds it in a pool shares that."""
    return f"{_PREFIX}host-{host}"


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
    for name in pool.names():
        if name.startswith(prefix):
            with suppress(VolumeNotFound):
                pool.delete(name)
