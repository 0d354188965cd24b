"""The networks and bridges that servers use: there, active, and started with the host."""

from collections.abc import Iterator, Mapping
from functools import partial

from millpond.doctor.finding import Finding, ok, problem, some, warning
from millpond.errors import NetworkInactive, NetworkNotFound, Tool
from millpond.hosts.host import Host
from millpond.model.server import NetworkKind


def look(host: Host) -> Iterator[Finding]:
    used = _used(host)
    found = [
        finding
        for (kind, name), servers in used.items()
        if (finding := _find_problem(host, kind, name, servers))
    ]
    yield from found or [ok("each server's network is there")]


def _used(host: Host) -> Mapping[tuple[NetworkKind, str], list[str]]:
    """The names of the servers, by what they are connected to."""
    found: dict[tuple[NetworkKind, str], list[str]] = {}
    for server in host.records.all():
        for each in server.networks:
            if each.kind is not NetworkKind.USER:
                found.setdefault((each.kind, each.source), []).append(server.name)
    return found


def _find_problem(host: Host, kind: NetworkKind, name: str, servers: list[str]) -> Finding | None:
    users = f"used by {some(sorted(set(servers)))}"
    try:
        if kind is NetworkKind.BRIDGE:
            host.networks.check_bridge(name)
            return None
        network = host.networks.get_active(name)
    except NetworkNotFound as error:
        return problem(f"{error}, {users}", f"define it again; {error.advice}")
    except NetworkInactive as error:
        return problem(f"{error}, {users}", error.advice, partial(_start, host, name))
    if network.autostart:
        return None
    return warning(
        f"libvirt network {name!r}, {users}, will not start together with the host",
        f"'{Tool.START_NETWORK} {name} --autostart', or '{Tool.REPAIR}', sees to it",
        partial(_autostart, host, name),
    )


def _start(host: Host, name: str) -> str:
    host.networks.start(name)
    return "it was started"


def _autostart(host: Host, name: str) -> str:
    host.networks.set_autostart(name, True)
    return "now it will"
