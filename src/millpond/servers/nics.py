"""The NICs of a server: planned with it, and added and removed, also while it runs."""

import logging
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Interface
from itertools import product

from millpond.errors import BadOption, Interrupted, NotFound, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.networks import HostNetwork
from millpond.model.operation import NicDetails
from millpond.model.server import Network, NetworkKind, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.domain_xml import interface_xml
from millpond.servers.power import NIC_REMOVAL

LOG = logging.getLogger(__name__)

_OPTION = "--network"


def plan_networks(host: Host, networks: Sequence[Network]) -> tuple[Network, ...]:
    """With all that a guest must know of them. Raises what is missing on the host, or taken."""
    planned = tuple(_plan(host, each) for each in networks)
    for key in ("mac", "address"):
        values = [value for each in planned if (value := getattr(each, key))]
        if len(set(values)) < len(values):
            raise BadOption(_OPTION, f"two NICs have one {key}", "give each its own")
    return planned


def _plan(host: Host, network: Network) -> Network:
    planned = replace(network, mac=network.mac or _new_mac())
    match network.kind:
        case NetworkKind.USER:
            if port := steps.find_open_port(host, [network]):
                reason = f"port {port.port} of {port.address} is in use on this host"
                raise BadOption("--publish", reason, "choose another port")
        case NetworkKind.BRIDGE:
            host.networks.check_bridge(network.source)
        case NetworkKind.NETWORK:
            found = host.networks.get_active(network.source)
            if network.address:
                _refuse_leased(host, planned, found)
                planned = _address_in(planned, found)
    if planned.address and "/" not in planned.address:
        advised = "write such as ip=10.0.0.5/24"
        raise BadOption(_OPTION, f"{planned.source} does not say how long the prefix is", advised)
    return planned


def _address_in(network: Network, found: HostNetwork) -> Network:
    """With the prefix of the libvirt network, and as gateway and name server the host's address
    there, unless others are said."""
    own = found.interface
    if own is None:  # a network that only stands for a bridge
        return network
    address = IPv4Interface(network.address).ip
    taken = (own.ip, own.network.network_address, own.network.broadcast_address)
    if address not in own.network or address in taken:
        reason = f"{address} cannot be a guest's address in {found.name}, which is {own}"
        raise BadOption(_OPTION, reason, f"choose another one of {own.network}")
    return replace(
        network,
        address=f"{address}/{own.network.prefixlen}",
        gateway=network.gateway or (str(own.ip) if found.forward else ""),
        nameservers=network.nameservers or ((str(own.ip),) if found.dns else ()),
    )


def _refuse_leased(host: Host, network: Network, found: HostNetwork) -> None:
    """To another NIC, of whomever."""
    address = str(IPv4Interface(network.address).ip)
    leased = [(each.mac, each.address) for each in host.networks.leases(found.name)]
    for mac, known in (*found.reserved, *leased):
        if known == address and mac != network.mac:
            raise BadOption(_OPTION, f"{address} is {mac}'s in {found.name}", "choose another one")


def holding_fixed(host: Host, networks: Sequence[Network]) -> AbstractContextManager[None]:
    """While MACs and addresses that somebody chose are compared with those of all other servers
    and written down. Those that nobody chose are not compared: they are random."""
    is_fixed = any(each.mac or each.address or each.ports for each in networks)
    return host.shared.locks.hold("nics") if is_fixed else nullcontext()


def refuse_taken(host: Host, server: Server, networks: Sequence[Network]) -> None:
    """Those of the server that another one of ours has."""
    others = (each for each in host.shared.records.readable()[0] if each.id != server.id)
    for other in others:
        for theirs in other.networks:
            for each in networks:
                if each.mac == theirs.mac:
                    raise BadOption(
                        _OPTION, f"{each.mac} is server {other.name!r}'s", "choose another MAC"
                    )
                if _share_address(each, theirs) and other.host == server.host:
                    address = each.address.partition("/")[0]
                    reason = f"{address} is server {other.name!r}'s"
                    raise BadOption(_OPTION, reason, "choose another address")
                if other.host == server.host:
                    _refuse_ports_of(other, each, theirs)


def _refuse_ports_of(other: Server, network: Network, theirs: Network) -> None:
    for each, known in product(network.ports, theirs.ports):
        if each.overlaps(known):
            reason = f"port {each.port} of the host is server {other.name!r}'s"
            raise BadOption("--publish", reason, "choose another port")


def _share_address(one: Network, other: Network) -> bool:
    return bool(one.address) and (one.kind, one.source, one.address) == (
        other.kind,
        other.source,
        other.address,
    )


def _new_mac() -> str:
    """In QEMU's own range, 52:54:00."""
    return "52:54:00:" + ":".join(f"{each:02x}" for each in secrets.token_bytes(3))


def add(host: Host, server: Server, network: Network) -> Network:
    """The guest asks for its address, or is told it by its user: the config drive stays."""
    with host.records.lock(server), holding_fixed(host, [network]):
        current = steps.load_idle(host, server)
        (nic,) = plan_networks(host, [network])
        if any(each.mac == nic.mac for each in current.networks):
            raise BadOption(_OPTION, f"{nic.mac} is a NIC of this server", "choose another MAC")
        refuse_taken(host, current, [nic])
        details = NicDetails(mac=nic.mac)
        larger = replace(current, networks=(*current.networks, nic))
        notes = ServerJournal(host.records, details)
        journal.run(adding(host, details), larger, notes, host.watch)
    LOG.info("added NIC %s to server %s", nic.mac, server.name)
    return nic


def remove(host: Host, server: Server, mac: str) -> None:
    """Called again while the guest still has the NIC, it goes on waiting for it."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(NIC_REMOVAL,))
        details = NicDetails(mac=_get(current, mac).mac)
        verb, notes = removing(host, details), ServerJournal(host.records, details)
        if _get(current, mac).ports and host.domains.state(server.id) in ON:
            reason = "libvirt does not know it, because its ports are published"
            raise Unsupported(f"removing NIC {mac} from a running server", reason, "stop it first")
        if (left := current.operation) is None:
            journal.run(verb, current, notes, host.watch)
        elif left.details == details:
            journal.recover(verb, left.step, current, notes, host.watch)
        else:
            raise Interrupted(server.name, left.verb, left.step)
    LOG.info("removed NIC %s from server %s", mac, server.name)


def adding(host: Host, details: NicDetails) -> Verb[Server]:
    """What its process left goes forward: the guest may have the NIC, and use it."""
    undone = partial(_without, details)
    attach = as_step(partial(_attach, host, details))
    return Verb(
        "nic add",
        (Step("attach", attach, partial(_detach, host, details)),),
        finished=without_operation,
        undone=lambda each: without_operation(undone(each)),
        resumes=True,
    )


def removing(host: Host, details: NicDetails) -> Verb[Server]:
    """It leaves the record last. Once the guest was asked, it may let the NIC go however late:
    then the removal stays recorded."""
    finished = partial(_without, details)
    return Verb(
        NIC_REMOVAL,
        (Step("detach", as_step(partial(_detach, host, details))),),
        finished=lambda each: without_operation(finished(each)),
        undone=without_operation,
        resumes=True,
    )


def _attach(host: Host, details: NicDetails, server: Server) -> None:
    nic = _get(server, details.mac)
    if host.domains.state(server.id) in ON:
        steps.reserve_addresses(host, [nic])
        host.networks.nics.attach(server.id, interface_xml(nic, server.hardware.vif_model))
        steps.write_metadata(host, without_operation(server))
    else:
        steps.define(host, server)


def _detach(host: Host, details: NicDetails, server: Server) -> None:
    nic, remaining = _get(server, details.mac), _without(details, server)
    if host.domains.state(server.id) in ON:
        host.networks.nics.detach(server.id, nic.mac)
        steps.write_metadata(host, without_operation(remaining))
    else:
        steps.define(host, remaining)
    steps.free_addresses(host, [nic])


def _without(details: NicDetails, server: Server) -> Server:
    kept = tuple(each for each in server.networks if each.mac != details.mac)
    return replace(server, networks=kept)


def _get(server: Server, mac: str) -> Network:
    for each in server.networks:
        if each.mac == mac.lower():
            return each
    known = ", ".join(each.mac for each in server.networks) or "none"
    raise NotFound(f"server {server.name!r} has no NIC {mac!r}", f"it has {known}")
