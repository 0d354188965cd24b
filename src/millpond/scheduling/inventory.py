"""What hosts have and can do, as inventories and traits of their providers in Placement."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from millpond.errors import (
    HostsShareUuid,
    ProviderRenamed,
    ProviderTaken,
    StillAllocated,
    UnknownTrait,
)
from millpond.libvirt.facts import HostFacts
from millpond.libvirt.pools import PoolWanted
from millpond.libvirt.sharing import sharers
from millpond.model.formats import ImageFormat
from millpond.model.sizes import GiB, MiB
from millpond.scheduling.host import SchedulableHost
from millpond.scheduling.placement import Inventory, Placement, Provider
from millpond.scheduling.providers import (
    DISK,
    MEMORY,
    VCPU,
    Ratio,
    gibibytes,
    mebibytes,
    pool_of,
    pool_provider,
    pool_provider_name,
)
from millpond.scheduling.traits import (
    BLANK_DISKS,
    CUSTOM,
    DISABLED,
    IMAGE_TYPES,
    OURS,
    SHARED_POOL,
    SHARES,
    of_architectures,
    of_buses,
    of_images,
)

Shared = Mapping[str, frozenset[str]]
"""UUIDs of the hosts that share a pool, by its name."""


def find_shared_pools(
    hosts: Iterable[SchedulableHost], uuids: Mapping[str, str], owner: str
) -> Mapping[str, Shared]:
    """By the host's name. Only pools that could be one are tried: same name, type and place."""
    alike: dict[tuple[str, str], list[SchedulableHost]] = defaultdict(list)
    for host in hosts:
        for name, pool in host.server_pools().items():
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
    return f"{pool.type} {pool.source} {pool.location} {monitors}"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInventory:
    name: str
    capacity: int
    reserved: int
    ratio: Ratio
    traits: frozenset[str]
    """Image types whose root disks land in it; of_images() makes them."""
    takes_blank_disks: bool
    shared_by: frozenset[str] = frozenset()
    """UUIDs of all hosts that were proven to share it, this one among them."""

    @property
    def is_shared(self) -> bool:
        return len(self.shared_by) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInventory:
    name: str
    uuid: str
    """libvirt's."""
    vcpus: int
    reserved_vcpus: int
    cpu_ratio: Ratio
    memory: int
    reserved_memory: int
    ram_ratio: Ratio
    traits: frozenset[str]
    """Of traits.py: image types, buses, architectures."""
    pools: tuple[PoolInventory, ...]


def inventory_of(
    host: SchedulableHost, facts: HostFacts, shared: Shared, *, disabled: bool = False
) -> HostInventory:
    capacity = host.capacity
    landing = host.pools_by_image_type(facts.hypervisor)
    return HostInventory(
        name=host.name,
        uuid=facts.uuid,
        vcpus=facts.vcpus,
        reserved_vcpus=capacity.reserved_host_cpus,
        cpu_ratio=capacity.cpu_allocation_ratio,
        memory=facts.memory,
        reserved_memory=capacity.reserved_host_memory_mb * MiB,
        ram_ratio=capacity.ram_allocation_ratio,
        traits=frozenset(
            of_images(facts.hypervisor, landing)
            | of_buses(facts.buses)
            | of_architectures(facts.architectures)
            | ({DISABLED} if disabled else set())
        ),
        pools=tuple(_pool_inventories(host, landing, shared)),
    )


def _pool_inventories(
    host: SchedulableHost, landing: Mapping[ImageFormat, str], shared: Shared
) -> Iterator[PoolInventory]:
    for name in sorted(host.disk_pools()):
        formats = [format for format, pool in landing.items() if pool == name]
        yield PoolInventory(
            name=name,
            capacity=host.open_pool(name).usage().capacity,
            reserved=host.capacity.reserved_host_disk_mb * MiB,
            ratio=host.capacity.disk_allocation_ratio,
            traits=frozenset(IMAGE_TYPES[each] for each in formats),
            takes_blank_disks=name in host.blank_disk_pools(),
            shared_by=shared.get(name, frozenset()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """Of one resource class, in its unit."""

    total: int
    reserved: int
    ratio: Ratio

    def inventory(self, present: Inventory | None) -> Inventory:
        """Placement wants one unit at least; what is less is all reserved."""
        total = max(self.total, 1)
        return Inventory(
            total=total,
            reserved=min(self.reserved, total) if self.total else total,
            allocation_ratio=self.ratio.apply(present.allocation_ratio if present else None),
            max_unit=total,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One provider as it is to be."""

    uuid: str
    name: str
    parent: str | None
    amounts: Mapping[str, _Amount]
    traits: frozenset[str]

    def inventories(self, present: Mapping[str, Inventory]) -> Mapping[str, Inventory]:
        """Classes of others stay: something may be allocated of them."""
        ours = {name: each.inventory(present.get(name)) for name, each in self.amounts.items()}
        return {**present, **ours}


class ProviderTrees:
    """Of hosts, in Placement: written is only what changed."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._providers = placement.providers

    def publish(self, hosts: Sequence[HostInventory]) -> bool:
        """Whether anything had to be written. Hosts that are not named are left as they are."""
        _refuse_twins(hosts)
        trees = {each.uuid: self._tree(each) for each in hosts}
        shared = self._shared_pools()
        changed = [self._publish_shared(hosts, shared)]
        for each in hosts:
            changed.append(self._publish_host(each, trees[each.uuid]))
            changed.append(self._join(each, shared.keys()))
        changed += [self._withdraw_unless_joined(each) for each in shared.values()]
        return any(changed)

    def disable(self, uuid: str) -> bool:
        """No new servers there; what is there stays counted. One that Placement does not know
        gets none anyway."""
        if not self._providers.find(uuid=uuid):
            return False
        return self._providers.change_traits(uuid, lambda now: now | {DISABLED})

    def rename(self, uuid: str, name: str) -> None:
        """A host that Placement knows by another name, for whoever is sure that it is the same."""
        tree = {each.uuid: each for each in self._providers.find(in_tree=uuid)}
        if uuid not in tree:
            return
        for each in tree.values():
            if pool := pool_of(tree[uuid], each):
                self._providers.rename(each, pool_provider_name(name, pool))
        self._providers.rename(tree[uuid], name)

    def _tree(self, host: HostInventory) -> dict[str, Provider]:
        """As it is; nothing has been written when it raises."""
        tree = {each.uuid: each for each in self._providers.find(in_tree=host.uuid)}
        root = tree.get(host.uuid)
        if root is None:
            for other in self._providers.find(name=host.name):
                raise ProviderTaken(host.name, other.uuid, host.uuid)
        elif root.name != host.name:
            raise ProviderRenamed(host.uuid, root.name, host.name)
        return tree

    def _shared_pools(self) -> dict[str, Provider]:
        """All of Millpond's, also of hosts that are not reported now."""
        try:
            return {each.uuid: each for each in self._providers.find(required=SHARED_POOL)}
        except UnknownTrait:  # there was never one
            return {}

    def _publish_host(self, host: HostInventory, tree: Mapping[str, Provider]) -> bool:
        own = [_pool(host, each) for each in host.pools if not each.is_shared]
        wanted = {each.uuid: each for each in (_host(host), *own)}
        changed = [self._publish(each, known=uuid in tree) for uuid, each in wanted.items()]
        for uuid, provider in tree.items():
            if uuid not in wanted and pool_of(tree[host.uuid], provider):
                changed.append(self._withdraw(provider))
        return any(changed)

    def _publish_shared(
        self, hosts: Sequence[HostInventory], present: Mapping[str, Provider]
    ) -> bool:
        """A pool that several hosts have is one provider, linked to each by an aggregate of the
        provider's own UUID."""
        wanted: dict[str, _Wanted] = {}
        for each in (_pool(host, pool) for host in hosts for pool in host.pools if pool.is_shared):
            before = wanted.get(each.uuid, each)
            wanted[each.uuid] = replace(each, traits=each.traits | before.traits)
        changed = []
        for uuid, each in wanted.items():
            # One whose maker was killed has no mark yet.
            known = uuid in present or bool(self._providers.find(uuid=uuid))
            changed.append(self._publish(each, known=known))
            changed.append(self._providers.change_aggregates(uuid, frozenset({uuid}).union))
        return any(changed)

    def _join(self, host: HostInventory, shared: Set[str]) -> bool:
        wanted = {_pool(host, each).uuid for each in host.pools if each.is_shared}
        left = frozenset(shared - wanted)
        return self._providers.change_aggregates(host.uuid, lambda now: (now - left) | wanted)

    def _withdraw_unless_joined(self, shared: Provider) -> bool:
        members = self._providers.find(member_of=shared.uuid)
        return all(each.uuid == shared.uuid for each in members) and self._withdraw(shared)

    def _publish(self, wanted: _Wanted, *, known: bool) -> bool:
        if not known:
            self._providers.create(wanted.uuid, wanted.name, wanted.parent)
            _log.info("Placement has a new provider %s", wanted.name)
        stocked = self._providers.change_inventories(wanted.uuid, wanted.inventories)
        return self._set_traits(wanted.uuid, wanted.traits) or stocked or not known

    def _set_traits(self, uuid: str, wanted: frozenset[str]) -> bool:
        def change(now: frozenset[str]) -> frozenset[str]:
            after = (now - OURS) | wanted
            if missing := (after - now) & CUSTOM:
                self._placement.make_traits(sorted(missing))
            return after

        return self._providers.change_traits(uuid, change)

    def _withdraw(self, provider: Provider) -> bool:
        """A pool that is gone; where something is allocated in it, it takes nothing more."""
        try:
            self._providers.remove(provider.uuid)
        except StillAllocated:
            full = self._providers.change_inventories(provider.uuid, _all_reserved)
            return self._providers.change_traits(provider.uuid, _bare) or full
        _log.info("provider %s is removed from Placement", provider.name)
        return True


def _refuse_twins(hosts: Sequence[HostInventory]) -> None:
    for uuid, count in Counter(each.uuid for each in hosts).items():
        if count > 1:
            raise HostsShareUuid(uuid, tuple(each.name for each in hosts if each.uuid == uuid))


def _host(host: HostInventory) -> _Wanted:
    processors = _Amount(total=host.vcpus, reserved=host.reserved_vcpus, ratio=host.cpu_ratio)
    memory = _Amount(
        total=host.memory // MiB,
        reserved=mebibytes(host.reserved_memory),
        ratio=host.ram_ratio,
    )
    return _Wanted(
        uuid=host.uuid,
        name=host.name,
        parent=None,
        amounts={VCPU: processors, MEMORY: memory},
        traits=host.traits,
    )


def _pool(host: HostInventory, pool: PoolInventory) -> _Wanted:
    marks = {BLANK_DISKS} if pool.takes_blank_disks else set()
    if pool.is_shared:
        marks |= {SHARES, SHARED_POOL}
    disk = _Amount(total=pool.capacity // GiB, reserved=gibibytes(pool.reserved), ratio=pool.ratio)
    return _Wanted(
        uuid=pool_provider(host.uuid, pool.name, pool.shared_by),
        name=pool_provider_name(host.name, pool.name, pool.shared_by),
        parent=None if pool.is_shared else host.uuid,
        amounts={DISK: disk},
        traits=pool.traits | marks,
    )


def _all_reserved(present: Mapping[str, Inventory]) -> Mapping[str, Inventory]:
    return {name: replace(each, reserved=each.total) for name, each in present.items()}


def _bare(traits: frozenset[str]) -> frozenset[str]:
    """The mark stays, by which it is found and removed when it is empty."""
    return (traits - OURS) | (traits & {SHARED_POOL})
