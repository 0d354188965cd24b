"""The provider tree: which provider a host and each of its pools is (docs/decisions/0014)."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid5

from millpond.model.server import Content, Server
from millpond.model.sizes import GiB, MiB
from millpond.scheduling.placement import Allocations, Provider

VCPU = "VCPU"
MEMORY = "MEMORY_MB"
DISK = "DISK_GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How far a resource is overcommitted, as Nova's two options have it."""

    stated: float | None
    """cpu_allocation_ratio and the like: it holds, whatever Placement has."""
    initial: float
    """initial_…: for a provider that is new; later on Placement may be told another."""

    def apply(self, present: float | None) -> float:
        return self.stated or present or self.initial


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """How much of a host servers may be promised; by Nova's names."""

    cpu_allocation_ratio: Ratio
    ram_allocation_ratio: Ratio
    disk_allocation_ratio: Ratio
    reserved_host_cpus: int
    reserved_host_memory_mb: int
    reserved_host_disk_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProviders:
    """The UUIDs of a host's resource providers."""

    host: str
    pools: Mapping[str, str]
    """Of the pools that its disks come to be in, by their names."""

    @property
    def all(self) -> frozenset[str]:
        return frozenset({self.host, *self.pools.values()})


Hosts = Mapping[str, HostProviders]
"""Those of ours that were reported, by their names."""


def allocations_for(server: Server, host: HostProviders) -> Allocations:
    """What a server takes of its host. Disks of one pool are added up before they are rounded;
    those in other pools are not counted: nobody has reported where they are. A config drive is
    not counted, as in Nova: the smallest one would be rounded up to a gibibyte."""
    sizes: Counter[str] = Counter()
    for disk in server.disks:
        if disk.pool in host.pools and disk.content is not Content.CONFIG:
            sizes[disk.pool] += disk.size
    return {
        host.host: {VCPU: server.flavor.vcpus, MEMORY: mebibytes(server.flavor.memory)},
        **{host.pools[pool]: {DISK: gibibytes(size)} for pool, size in sizes.items() if size},
    }


def pool_provider(host: str, pool: str, shared_by: Collection[str] = ()) -> str:
    """Its provider's UUID: the host's child, or one for all who share it."""
    if len(shared_by) > 1:
        return str(uuid5(UUID(min(shared_by)), f"shared:{pool}"))
    return str(uuid5(UUID(host), pool))


def pool_provider_name(host: str, pool: str, shared_by: Collection[str] = ()) -> str:
    """Names are unique in a Placement, which may have pools of one name from several Millponds."""
    if len(shared_by) > 1:
        return f"shared:{pool}:{min(shared_by)}"
    return f"{host}:{pool}"


def pool_of(host: Provider, child: Provider) -> str | None:
    """The pool that a child of the host is; None if somebody else made it."""
    pool = child.name.removeprefix(f"{host.name}:")
    return pool if child.uuid == pool_provider(host.uuid, pool) else None


def mebibytes(size: int) -> int:
    """Of what is asked for or reserved: a part of one counts as a whole."""
    return -(-size // MiB)


def gibibytes(size: int) -> int:
    return -(-size // GiB)
