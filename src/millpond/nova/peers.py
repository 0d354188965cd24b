"""Another compute host of the same cloud: whether it has our driver, and its pools, by its own
libvirtd, which Nova reaches to migrate a server live."""

from dataclasses import dataclass

import nova.conf
from nova import exception
from nova.context import get_admin_context
from nova.objects.compute_node import ComputeNodeList
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.errors import MillpondError, PoolNotFound, UnfitHost
from millpond.hosts.host import Host
from millpond.libvirt.domains import Domains
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.pools import Pools
from millpond.libvirt.sharing import are_one
from millpond.model.names import ServerId
from millpond.system.libvirtd import Libvirtd

CONF = nova.conf.CONF

STATS = "millpond"
"""A key of the statistics that a compute host reports to Nova: at which address its libvirtd is
reached. Nova's own driver reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    libvirtd: Libvirtd
    pools: Pools
    domains: Domains

    def has_domain(self, id: ServerId) -> bool:
        return self.domains.state(id) is not None

    def pool(self, name: str) -> LibvirtPool:
        """One of the same name as here: none is made."""
        try:
            return self.pools.open(name)
        except PoolNotFound as error:
            reason = f"host {self.name!r} has no storage pool {name!r}"
            advice = "hosts that servers move between have pools of the same names"
            raise UnfitHost(reason, advice) from error


def own_address() -> str:
    return str(CONF.libvirt.live_migration_inbound_addr or CONF.my_ip)


def find_address(name: str) -> str | None:
    """Of a host's libvirtd; None if it has another driver, or is gone."""
    try:
        nodes = ComputeNodeList.get_all_by_host(get_admin_context(), name)
    except exception.ComputeHostNotFound:
        return None
    return next((found for each in nodes if (found := (each.stats or {}).get(STATS))), None)


def find_peer(host: Host, name: str) -> Peer:
    """Raises UnfitHost if it has another driver."""
    address = find_address(name)
    if address is None:
        reason = f"host {name!r} does not run Millpond's driver, and would not find the disks"
        raise UnfitHost(reason, "choose another host")
    uri = LibvirtDriver._live_migration_uri(address)
    libvirtd = Libvirtd(uri, patience=host.settings.libvirt.connection_timeout)
    pools = Pools(libvirtd, host.pool_plan, host.locks, probe=lambda _pool: False)
    return Peer(name=name, libvirtd=libvirtd, pools=pools, domains=Domains(libvirtd))


def shares_pool(host: Host, peer: Peer, name: str, owner: str) -> bool:
    """Whether both hosts have one storage below this name. ``owner``: of the marks."""
    here, there = host.pools.ensure(name), peer.pool(name)
    with host.locks.hold(f"sharing:{name}:{owner}"):
        return are_one(here, there, owner)


def is_proven_apart(host: Host, name: str, pool: str, owner: str) -> bool:
    """Before a volume is deleted that another host has, too, under the same name: whether that is
    certainly another one."""
    try:
        return not shares_pool(host, find_peer(host, name), pool, owner)
    except MillpondError:
        return False
