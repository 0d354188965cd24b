"""Each host as people see it: what it has, what its servers take, which images it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.engine import Engine
from millpond.model.server import Server
from millpond.placing.reporter import HostLook, Reporter
from millpond.placing.reports import report
from millpond.scheduling.providers import HostReport, PoolReport, Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    used: int
    """By the records of its servers."""
    capacity: int
    """What they may be promised: less what is reserved, times the ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStanding:
    name: str
    disk: Amount
    image_types: tuple[str, ...]
    """Of images whose disks come to be there."""
    takes_blank_disks: bool
    shared_with: tuple[str, ...]
    """Hosts that were proven to have the same pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStanding:
    name: str
    uri: str
    state: str
    uuid: str = ""
    servers: int
    vcpus: Amount | None = None
    memory: Amount | None = None
    traits: tuple[str, ...] = ()
    pools: tuple[PoolStanding, ...] = ()


def standing(
    engine: Engine, look: HostLook, reporter: Reporter, everywhere: Sequence[Server]
) -> HostStanding:
    """``everywhere``: the servers of all hosts, some of which may share a pool with this one."""
    servers = [each for each in everywhere if each.host == engine.name]
    if look.facts is None:
        return HostStanding(
            name=engine.name,
            uri=engine.libvirtd.uri,
            state=f"gone: {look.gone}",
            servers=len(servers),
        )
    found = report(engine, look.facts, reporter.shared_by(engine.name))
    names = {each.uuid: name for name, each in reporter.known().items()}
    return HostStanding(
        name=engine.name,
        uri=engine.libvirtd.uri,
        state="up",
        uuid=found.uuid,
        servers=len(servers),
        vcpus=_vcpus(found, servers),
        memory=_memory(found, servers),
        traits=tuple(sorted(found.traits)),
        pools=tuple(_pool(found, each, everywhere, names) for each in found.pools),
    )


def _vcpus(host: HostReport, servers: Sequence[Server]) -> Amount:
    used = sum(each.flavor.vcpus for each in servers)
    return _amount(used, host.vcpus - host.reserved_vcpus, host.cpu_ratio)


def _memory(host: HostReport, servers: Sequence[Server]) -> Amount:
    used = sum(each.flavor.memory for each in servers)
    return _amount(used, host.memory - host.reserved_memory, host.ram_ratio)


def _pool(
    host: HostReport, pool: PoolReport, servers: Sequence[Server], names: Mapping[str, str]
) -> PoolStanding:
    others = sorted(names.get(each, each) for each in pool.shared_by - {host.uuid})
    theirs = [each for each in servers if each.host in (host.name, *others)]
    used = sum(disk.size for each in theirs for disk in each.disks if disk.pool == pool.name)
    return PoolStanding(
        name=pool.name,
        disk=_amount(used, pool.capacity - pool.reserved, pool.ratio),
        image_types=tuple(sorted(pool.traits)),
        takes_blank_disks=pool.takes_blank_disks,
        shared_with=tuple(others),
    )


def _amount(used: int, real: int, ratio: Ratio) -> Amount:
    return Amount(used=used, capacity=int(max(real, 0) * ratio.applied(None)))
