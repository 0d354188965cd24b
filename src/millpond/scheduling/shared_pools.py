"""Which hosts share a pool, proven by what one makes and the others see."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from millpond.libvirt.ensure import PoolWanted
from millpond.libvirt.sharing import sharers
from millpond.scheduling.host import SchedulableHost

Shared = Mapping[str, frozenset[str]]
"""UUIDs of the hosts that share a pool, by its name."""


def find_shared_pools(
    hosts: Iterable[SchedulableHost], uuids: Mapping[str, str], owner: str
) -> Mapping[str, Shared]:
    """By the host's name. Only pools that could be one are tried: same name, type and place."""
    alike: dict[tuple[str, str], list[SchedulableHost]] = defaultdict(list)
    for host in hosts:
        for name, pool in host.disk_pools().items():
            alike[name, _location(pool)].append(host)
    found: dict[str, dict[str, frozenset[str]]] = {name: {} for name in uuids}
    for (name, _), those in alike.items():
        for group in sharers({each.name: each.open_pool(name) for each in those}, owner):
            for member in group:
                found[member][name] = frozenset(uuids[each] for each in group)
    return found


def merge_groups(shared: Mapping[str, Shared], uuids: Mapping[str, str]) -> Mapping[str, Shared]:
    """Groups of one pool that have a host in common are one."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for host, uuid in uuids.items():
        found[host] = {}
        for pool in {pool for each in shared.values() for pool in each}:
            group = {uuid}
            while (
                larger := {
                    member
                    for each in shared.values()
                    if group & each.get(pool, frozenset())
                    for member in each[pool]
                }
                - group
            ):
                group |= larger
            if len(group) > 1:
                found[host][pool] = frozenset(group)
    return found


def _location(pool: PoolWanted) -> str:
    monitors = pool.ceph.monitors if pool.ceph else ()
    return f"{pool.type} {pool.source} {pool.place} {monitors}"
