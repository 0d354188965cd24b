"""Each host as people see it: what it has, what its servers take, which images it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.model.server import Server
from millpond.scheduling.disabled import Disabled
from millpond.scheduling.host import SchedulableHost
from millpond.scheduling.inventory import HostInventory, PoolInventory, inventory_of
from millpond.scheduling.providers import Ratio
from millpond.scheduling.reporter import HostAnswer, LastReports

UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    used: int
    """By the records of its servers."""
    capacity: int
    """What they may be promised: less what is reserved, times the ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    name: str
    disk: Amount
    image_types: tuple[str, ...]
    """Of images whose disks come to be there."""
    takes_blank_disks: bool
    shared_with: tuple[str, ...]
    """Hosts that were proven to have the same pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSummary:
    name: str
    uri: str
    state: str
    problem: str = ""
    """Why it does not answer."""
    disabled: str = ""
    """Since when, and why it gets no new servers by the operator's word."""
    uuid: str = ""
    servers: int
    vcpus: Amount | None = None
    memory: Amount | None = None
    traits: tuple[str, ...] = ()
    pools: tuple[PoolSummary, ...] = ()


def summarize(
    hosts: Mapping[str, SchedulableHost],
    answers: Mapping[str, HostAnswer],
    known: LastReports,
    disabled: Mapping[str, Disabled],
    servers: Sequence[Server],
) -> list[HostSummary]:
    """``servers``: those of all hosts, some of which may share a pool with another."""
    found = (_summary(hosts[name], answer, known, servers) for name, answer in answers.items())
    return [_note_disabled(each, disabled.get(each.name)) for each in found]


def _note_disabled(host: HostSummary, disabled: Disabled | None) -> HostSummary:
    if disabled is None:
        return host
    state = "disabled" if host.state == UP else f"disabled, {host.state}"
    return replace(host, state=state, disabled=f"{disabled.why}, {disabled.since}")


def _summary(
    host: SchedulableHost, answer: HostAnswer, known: LastReports, everywhere: Sequence[Server]
) -> HostSummary:
    servers = [each for each in everywhere if each.host == host.name]
    if answer.facts is None:
        return HostSummary(
            name=host.name,
            uri=host.uri,
            state="does not answer",
            problem=answer.gone,
            servers=len(servers),
        )
    shared = known[host.name].shared_pools if host.name in known else {}
    found = inventory_of(host, answer.facts, shared)
    names = {each.uuid: name for name, each in known.items()}
    return HostSummary(
        name=host.name,
        uri=host.uri,
        state=UP,
        uuid=found.uuid,
        servers=len(servers),
        vcpus=_vcpus(found, servers),
        memory=_memory(found, servers),
        traits=tuple(sorted(found.traits)),
        pools=tuple(_pool(found, each, everywhere, names) for each in found.pools),
    )


def _vcpus(host: HostInventory, servers: Sequence[Server]) -> Amount:
    used = sum(each.flavor.vcpus for each in servers)
    return _amount(used, host.vcpus - host.reserved_vcpus, host.cpu_ratio)


def _memory(host: HostInventory, servers: Sequence[Server]) -> Amount:
    used = sum(each.flavor.memory for each in servers)
    return _amount(used, host.memory - host.reserved_memory, host.ram_ratio)


def _pool(
    host: HostInventory, pool: PoolInventory, servers: Sequence[Server], names: Mapping[str, str]
) -> PoolSummary:
    others = sorted(names.get(each, each) for each in pool.shared_by - {host.uuid})
    theirs = [each for each in servers if each.host in (host.name, *others)]
    used = sum(disk.size for each in theirs for disk in each.disks if disk.pool == pool.name)
    return PoolSummary(
        name=pool.name,
        disk=_amount(used, pool.capacity - pool.reserved, pool.ratio),
        image_types=tuple(sorted(pool.traits)),
        takes_blank_disks=pool.takes_blank_disks,
        shared_with=tuple(others),
    )


def _amount(used: int, real: int, ratio: Ratio) -> Amount:
    return Amount(used=used, capacity=int(max(real, 0) * ratio.apply(None)))
