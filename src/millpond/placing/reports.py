"""From what a host is and is configured for to what is reported of it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from millpond.disks.selection import SOURCES
from millpond.engine import Engine
from millpond.libvirt.ensure import PoolWanted
from millpond.libvirt.facts import HostFacts
from millpond.libvirt.sharing import sharers
from millpond.model.formats import Backend, ImageFormat
from millpond.model.sizes import MiB
from millpond.scheduling import traits
from millpond.scheduling.providers import HostReport, PoolReport

Shared = Mapping[str, frozenset[str]]
"""UUIDs of the hosts that share a pool, by its name."""


def report(engine: Engine, facts: HostFacts, shared: Shared) -> HostReport:
    capacity = engine.settings.capacity
    formats = engine.image_types_of(facts.hypervisor)
    return HostReport(
        name=engine.name,
        uuid=facts.uuid,
        vcpus=facts.vcpus,
        reserved_vcpus=capacity.reserved_host_cpus,
        cpu_ratio=capacity.cpu_allocation_ratio,
        memory=facts.memory,
        reserved_memory=capacity.reserved_host_memory_mb * MiB,
        ram_ratio=capacity.ram_allocation_ratio,
        traits=frozenset(
            traits.of_images(engine.hypervisor(facts.hypervisor), formats)
            | traits.of_buses(facts.buses)
            | traits.of_architectures(facts.architectures)
        ),
        pools=tuple(_pools(engine, formats, shared)),
    )


def _pools(
    engine: Engine, formats: Collection[ImageFormat], shared: Shared
) -> Sequence[PoolReport]:
    capacity = engine.settings.capacity
    landing = _landing(engine, formats)
    blank = engine.settings.libvirt.selection.blank_backend()
    blanks = {engine.pool_of(blank, role) for role in ("disk.eph0", "disk.swap")}
    return [
        PoolReport(
            name=name,
            capacity=engine.pools.named(name).usage().capacity,
            reserved=capacity.reserved_host_disk_mb * MiB,
            ratio=capacity.disk_allocation_ratio,
            traits=frozenset(traits.IMAGE_TYPES[each] for each in landing[name]),
            takes_blank_disks=name in blanks,
            shared_by=shared.get(name, frozenset()),
        )
        for name in sorted(engine.pools_of_disks())
    ]


def _landing(engine: Engine, formats: Collection[ImageFormat]) -> Mapping[str, set[ImageFormat]]:
    """The formats whose disks come to be in each pool."""
    selection = engine.settings.libvirt.selection
    found: dict[str, set[ImageFormat]] = defaultdict(set)
    for each in formats:
        if each in SOURCES:
            found[engine.pool_of(selection.choose(each).backend, "disk")].add(each)
        else:
            found[engine.pool_of(Backend.RAW, "kernel")].add(each)
    return found


def _place(wanted: PoolWanted) -> str:
    monitors = wanted.ceph.monitors if wanted.ceph else ()
    return f"{wanted.type} {wanted.source} {wanted.place} {monitors}"


def proven_shared(
    engines: Mapping[str, Engine], uuids: Mapping[str, str], owner: str
) -> Mapping[str, Shared]:
    """By the host's name. Only pools that could be one are tried: same name, type and place."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host, engine in engines.items():
        for name in engine.pools_of_disks():
            alike[name, _place(engine.pool_plan.all()[name])].append(host)
    found: dict[str, dict[str, frozenset[str]]] = {host: {} for host in engines}
    for (name, _), hosts in alike.items():
        pools = {host: engines[host].pools.named(name) for host in hosts}
        for group in sharers(pools, owner):
            for host in group:
                found[host][name] = frozenset(uuids[each] for each in group)
    return found
