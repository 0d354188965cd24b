"""What moves left on hosts that did not answer: what the record of its server names is removed,
and a domain that it has on another host, too; everything else is reported (B31)."""

from collections.abc import Iterator
from functools import partial

from millpond.doctor.finding import Finding, counted, problem, some, warning
from millpond.errors import MillpondError, PoolNotFound, Tool, WrongState
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON, MarkedDomain
from millpond.libvirt.facts import facts_of
from millpond.model.move import hosts_of
from millpond.model.names import ServerId
from millpond.model.server import Server
from millpond.servers import leftovers, steps


def noted(host: Host) -> Iterator[Finding]:
    """What records name. Only said if there is some."""
    servers, _ = host.shared.records.readable()
    for server in servers:
        left = [each for each in server.leftovers if each.host == host.name]
        if left and not server.operation:
            names = some([disk.volume for each in left for disk in each.disks])
            yield warning(
                f"a move left the domain of server {server.name!r}, which is on host "
                f"{server.host}, or disks of it: {names or 'none'}",
                f"do not start it here; '{Tool.REPAIR}' removes them",
                partial(_sweep, host, server),
            )


def _sweep(host: Host, server: Server) -> str:
    with host.shared.records.lock(server):
        current = host.shared.records.find(server.id)
        if current and not current.operation:
            current = leftovers.sweep(host, current, host.name)
    if current and any(each.host == host.name for each in current.leftovers):
        return f"they stay until host {current.host} answers"
    return "they were removed"


def unknown(host: Host) -> Iterator[Finding]:
    """Volumes of servers that are on other hosts, in pools which those are known not to share.
    Only said if there are some."""
    plan = host.pool_plan
    pools = [each.name for each in plan.all().values() if each != plan.base]
    yield from (finding for name in pools if (finding := _in_pool(host, name)))


def _in_pool(host: Host, name: str) -> Finding | None:
    try:
        listed = set(host.pools.open(name).names())
    except PoolNotFound:
        return None
    servers, _ = host.shared.records.readable()
    left = [
        f"{disk.volume} (server {server.name!r} on host {server.host})"
        for server in servers
        if server.host != host.name and not server.operation
        if not any(each.host == host.name for each in server.leftovers)
        for disk in server.disks
        if disk.pool == name and disk.volume in listed
        if not _may_share(host, server.host, name)
    ]
    if not left:
        return None
    return warning(
        f"{counted(len(left), 'volume')} in pool {name!r} of servers that are on other hosts: "
        f"{some(left)}",
        f"'{Tool.REPORT_HOSTS}' looks whether the hosts share the pool: then this goes; if they "
        "do not, a move left them: start the server where it is, and when it is whole, "
        f"'virsh vol-delete VOLUME {name}' on this host removes one",
    )


def _may_share(host: Host, other: str, pool: str) -> bool:
    """As it was last proven; also if nobody has looked."""
    deployment = host.shared
    if not isinstance(deployment, Deployment) or not deployment.schedules:
        return True
    known = deployment.scheduler.reporter.providers()
    if host.name not in known or other not in known or pool not in known[host.name].pools:
        return True
    return known[host.name].pools[pool] == known[other].pools.get(pool)


def find_copies(host: Host) -> Iterator[Finding]:
    """Domains of servers that other hosts have."""
    found = (describe_copy(host, each) for each in steps.unrecorded_domains(host))
    return filter(None, found)


def describe_copy(host: Host, domain: MarkedDomain) -> Finding | None:
    """The domain of a server that another host has: it was evacuated, or moved while this host
    was silent."""
    id = ServerId(domain.uuid)
    elsewhere = host.records.host_of(id)
    if elsewhere is None:
        return None
    if found := _describe_move(host, id):
        return found
    runs = host.domains.state(id) in ON
    state = ", and runs: two guests may write to the same disks" if runs else ""
    what = f"domain {domain.name!r} is that of a server which is on host {elsewhere}{state}"
    if not _has_domain(host, elsewhere, id):
        does = f"if it is a leftover, 'virsh undefine {domain.name}' on this host removes it"
        return problem(what, f"do not start it here; {does}")
    does = f"'{Tool.REPAIR}' {'powers it off and ' if runs else ''}removes it, and no disk"
    return problem(what, f"do not start it here; {does}", partial(_remove_copy, host, id))


def _describe_move(host: Host, id: ServerId) -> Finding | None:
    """One that is under way to or from here: its journal says what the domain is."""
    server = host.shared.records.find(id)
    if server is None or server.operation is None or host.name not in hosts_of(server):
        return None
    if host.shared.records.is_worked_on(server):
        what = (
            f"server {server.name!r} of host {server.host} is being moved, and has a domain here"
        )
        return warning(what, "wait until that has ended")
    reached = f"at step {server.operation.step!r} of its {server.operation.verb!r}"
    return problem(
        f"server {server.name!r} of host {server.host} has a domain here: it was left {reached}",
        f"do not undefine or start it; '{Tool.REPAIR}' of all hosts finishes or undoes the move",
    )


def _has_domain(host: Host, name: str, id: ServerId) -> bool:
    """Whether the other host has one of its own. One libvirtd under two names has one domain."""
    deployment = host.shared
    if not isinstance(deployment, Deployment) or name not in deployment.hosts:
        return False
    other = deployment.hosts[name]
    try:
        is_another = facts_of(other.libvirtd).uuid != facts_of(host.libvirtd).uuid
        return is_another and other.domains.state(id) is not None
    except MillpondError:
        return False


def _remove_copy(host: Host, id: ServerId) -> str:
    """Its disks stay: they may be those that the server has on the other host."""
    records = host.shared.records
    server = records.find(id)
    if server is None:
        return "its server is gone meanwhile"
    with records.lock(server):
        current = records.find(id)
        if current is None or current.operation or not _has_domain(host, current.host, id):
            raise WrongState(server.name, "being changed", "idle on another host")
        host.domains.power_off(id)
        host.domains.undefine(id, keeps_variables=current.keeps_variables)
        steps.free_addresses(host, current.networks)
    return "the domain was removed, no disk was"
