"""The addresses of servers: those that are fixed, DHCP's leases, and what ARP and guests say."""

from collections.abc import Mapping, Sequence

from millpond.hosts.host import Host
from millpond.model.names import ServerId
from millpond.model.server import Network, NetworkKind, Server

Addresses = Mapping[str, tuple[str, ...]]
"""By MAC."""

_PATIENCE = 2.0
"""Seconds that guests have to answer, all together: nobody waits longer for a list."""


def find_addresses(host: Host, servers: Sequence[Server]) -> Addresses:
    """Of the interfaces of servers that run. What nobody knows is left out: a guest that is still
    booting has none, and in a network of QEMU's own it cannot be reached by one."""
    reachable = [
        (server.id, each)
        for server in servers
        for each in server.networks
        if each.kind is not NetworkKind.USER and each.mac
    ]
    found = _leases(host, {each.source for _, each in reachable if _is_leased(each)})
    unknown: dict[ServerId, set[str]] = {}
    for id, each in reachable:
        if each.mac not in found:
            unknown.setdefault(id, set()).add(each.mac)
    return {**found, **host.networks.heard(unknown, _PATIENCE)} if unknown else found


def _is_leased(network: Network) -> bool:
    return network.kind is NetworkKind.NETWORK


def _leases(host: Host, networks: set[str]) -> dict[str, tuple[str, ...]]:
    """One call per network, however many servers are in it."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(networks):
        for lease in host.networks.leases(name):
            found[lease.mac] = (*found.get(lease.mac, ()), lease.address)
    return found
