"""What several verbs look at before they begin, and what their steps do to a server. All of it may
be done again."""

import logging
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Interface
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

from millpond.errors import (
    BadOption,
    Conflict,
    DiskOverlaid,
    ExceedsHost,
    HostProblem,
    Interrupted,
    LibvirtFailed,
    NameTaken,
    NoRoom,
    PlacementProblem,
    Tool,
    UnreadableRecord,
    WrongState,
)
from millpond.hosts.host import Host
from millpond.hosts.legacy import refuse_legacy_servers
from millpond.libvirt.domains import MarkedDomain
from millpond.libvirt.networks import HostNetwork
from millpond.model.move import hosts_of
from millpond.model.server import Flavor, Hardware, Network, NetworkKind, PortForward, Server
from millpond.model.sizes import format_size
from millpond.records import codec
from millpond.records.records import without_operation
from millpond.servers.domain_xml import domain_xml, former_xml, record_xml
from millpond.system.ports import is_taken
from millpond.xml.domain import DomainXml
from millpond.xml.kept_devices import find_overlays

LOG = logging.getLogger(__name__)

_NETWORK = "--network"

_REPAIR = f"'{Tool.REPAIR_PLACEMENT}' repairs that"


def load_idle(host: Host, server: Server, *, but: Collection[str] = ()) -> Server:
    """The record as it is now that its lock is held; one left in the middle is refused, ``but``
    of these verbs."""
    current = host.records.find(server.id)
    if current is None:
        raise WrongState(server.name, "gone", "there")
    if current.operation and current.operation.verb not in but:
        raise Interrupted(server.name, current.operation.verb, current.operation.step)
    return current


def refuse_unsettled(server: Server) -> None:
    """One whose root disk is not its only one."""
    if server.resized_from:
        what = f"server {server.name!r} has a resize that is neither confirmed nor reverted"
        raise Conflict(what, f"'{Tool.SERVER} resize {server.name} --confirm' or --revert ends it")
    if server.is_rescued:
        what = f"server {server.name!r} is in rescue"
        raise Conflict(what, f"'{Tool.SERVER} unrescue {server.name}' ends that")


def refuse_taken_name(host: Host, server: Server) -> None:
    if host.records.has_name(server.name):
        raise NameTaken("a server", server.name)
    if host.domains.is_named(server.name, but=server.id):
        raise NameTaken(f"a domain of somebody else's on host {host.name}", server.name)


def refuse_foreign_servers(host: Host) -> None:
    """Each domain of ours carries the mark of its state directory (B31): two of them
    would each take the other's volumes for leftovers."""
    if host.settings.libvirt.selection.images_type.pools_only:
        refuse_legacy_servers(host)
    for domain in unrecorded_domains(host):
        if domain.record.owner != host.records.owner:
            raise HostProblem(
                f"host {host.name!r} has servers of another Millpond state directory "
                f"(owner {domain.record.owner}, server {domain.name!r})",
                "one libvirtd serves one state directory: use that one, or for trials a libvirtd "
                "of its own, such as qemu:///session; only if that directory is lost for good, "
                f"'{Tool.ADOPT}' takes its servers over",
            )


def unrecorded_domains(host: Host) -> list[MarkedDomain]:
    """Those that carry a mark of Millpond, and have no record here."""
    known = {server.id for server in host.records.all()}
    return list(host.domain_records.all(ignoring=known))


def check_size(host: Host, flavor: Flavor, hardware: Hardware) -> None:
    """Whether the machine type has so many vCPUs, and the host so much memory."""
    limits = host.limits(hardware)
    for option, vcpus in (("--vcpus", flavor.vcpus), ("--max-vcpus", flavor.max_vcpus)):
        if limits.vcpus and vcpus > limits.vcpus:
            most = f"machine type {hardware.machine} has {limits.vcpus} at the most"
            advised = f"write {option} {limits.vcpus} or less"
            raise ExceedsHost(option, f"{vcpus} are too many: {most}", advised)
    for option, memory in (("--memory", flavor.memory), ("--max-memory", flavor.max_memory)):
        if memory > limits.memory:
            most = f"host {host.name!r} has {format_size(limits.memory)}"
            raise ExceedsHost(option, f"{format_size(memory)} are too much: {most}", "write less")


def warn_of_small_pools(host: Host, server: Server) -> None:
    """A thin disk may promise more than there is. The server is made: nothing is an error here."""
    with suppress(HostProblem):
        for disk in server.disks:
            pool = host.pools.ensure(disk.pool)
            free = pool.usage().available
            if pool.capabilities.sparse and disk.size > free:
                LOG.warning(
                    "%s of server %s, %s, is larger than the free space in pool %s, %s: the guest "
                    "can fill that",
                    disk.role,
                    server.name,
                    format_size(disk.size),
                    disk.pool,
                    format_size(free),
                )


def plan_networks(host: Host, networks: Sequence[Network]) -> tuple[Network, ...]:
    """With all that a guest must know of them. Raises what is missing on the host, or taken."""
    planned = tuple(_plan(host, each) for each in networks)
    for key in ("mac", "address"):
        values = [value for each in planned if (value := getattr(each, key))]
        if len(set(values)) < len(values):
            raise BadOption(_NETWORK, f"two NICs have one {key}", "give each its own")
    return planned


def _plan(host: Host, network: Network) -> Network:
    planned = replace(network, mac=network.mac or _new_mac())
    match network.kind:
        case NetworkKind.USER:
            if port := find_open_port(host, [network]):
                reason = f"port {port.port} of {port.address} is in use on this host"
                raise ExceedsHost("--publish", reason, "choose another port")
        case NetworkKind.BRIDGE:
            host.networks.check_bridge(network.source)
        case NetworkKind.NETWORK:
            found = host.networks.get_active(network.source)
            if network.address:
                _refuse_leased(host, planned, found)
                planned = _address_in(planned, found)
    if planned.address and "/" not in planned.address:
        advised = "write such as ip=10.0.0.5/24"
        raise BadOption(_NETWORK, f"{planned.source} does not say how long the prefix is", advised)
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
        raise ExceedsHost(_NETWORK, reason, f"choose another one of {own.network}")
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
            raise ExceedsHost(
                _NETWORK, f"{address} is {mac}'s in {found.name}", "choose another one"
            )


@contextmanager
def taking_fixed(
    host: Host, server: Server, asked: Sequence[Network], planned: Sequence[Network]
) -> Iterator[None]:
    """While MACs, addresses and ports that somebody asked for are written down: no other server
    has them. Those that nobody chose are random, and not compared."""
    if not any(each.mac or each.address or each.ports for each in asked):
        yield
        return
    with host.shared.locks.hold("nics"):
        _refuse_taken(host, server, planned)
        yield


def _refuse_taken(host: Host, server: Server, networks: Sequence[Network]) -> None:
    """Those of the server that another one of ours has."""
    others = (each for each in host.shared.records.readable()[0] if each.id != server.id)
    for other in others:
        meet = server.host in hosts_of(other)
        for theirs in other.networks:
            for each in networks:
                if each.mac == theirs.mac:
                    raise BadOption(
                        _NETWORK,
                        f"{each.mac} is server {other.name!r}'s",
                        "choose another MAC",
                    )
                if meet and _share_address(each, theirs):
                    address = each.address.partition("/")[0]
                    reason = f"{address} is server {other.name!r}'s"
                    raise BadOption(_NETWORK, reason, "choose another address")
                if meet:
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


def targets(host: Host, server: Server) -> set[str]:
    """Those of the record, and those of devices that somebody gave the domain."""
    domain = host.domains.description(server.id, defined=True)
    running = host.domains.description(server.id)
    given = {disk.target for each in (domain, running) if each for disk in each.disks}
    return given | {disk.target for disk in server.disks}


def check_networks(host: Host, networks: Sequence[Network]) -> None:
    """Whether they are there and active."""
    for each in networks:
        match each.kind:
            case NetworkKind.NETWORK:
                host.networks.get_active(each.source)
            case NetworkKind.BRIDGE:
                host.networks.check_bridge(each.source)


def find_open_port(host: Host, networks: Sequence[Network]) -> PortForward | None:
    """One to be published at which something listens already, as far as the host is this
    machine."""
    ports = [each for network in networks for each in network.ports]
    if not ports or urlsplit(host.settings.libvirt.connection_uri).hostname:
        return None
    return next((each for each in ports if is_taken(each.address, each.port, each.protocol)), None)


def claim(host: Host, server: Server) -> None:
    if host.claims:
        host.claims.hold(server)


def release(host: Host, server: Server) -> None:
    if host.claims:
        host.claims.release(server)


def unclaim(host: Host, server: Server) -> None:
    """Claim what it had before, as an undo."""
    with log_placement_errors(server):
        claim(host, server)


@contextmanager
def log_placement_errors(server: Server) -> Iterator[None]:
    """On the way back: a server is not left in the middle of something because of its claim."""
    try:
        yield
    except (PlacementProblem, NoRoom) as error:
        LOG.warning("%s may be counted wrongly in Placement: %s. %s", server.name, error, _REPAIR)


def define(host: Host, server: Server) -> Server:
    """The domain as the record says; what it does not speak of stays."""
    present = host.domains.description(server.id, defined=True)
    server = _with_machine(host, server, present)
    wanted = describe(host, server, host.consoles.make(server.id))
    _refuse_overlays(present, wanted)
    lost = host.domains.define(wanted, _former(host, present))
    if lost:
        changed = "; ".join(lost)
        LOG.warning("%s: changed manually, and now again as recorded: %s", server.name, changed)
    sync_autostart(host, server)
    reserve_addresses(host, server.networks)
    return server


def reserve_addresses(host: Host, networks: Sequence[Network]) -> None:
    """The fixed ones, in the DHCP of their libvirt networks."""
    for each in networks:
        if each.kind is NetworkKind.NETWORK and each.address:
            host.networks.reserve(each.source, each.mac, each.address.partition("/")[0])


def free_addresses(host: Host, networks: Sequence[Network]) -> None:
    for each in networks:
        if each.kind is NetworkKind.NETWORK and each.address:
            host.networks.free(each.source, each.mac)


def describe(host: Host, server: Server, log: Path | None = None) -> DomainXml:
    """Its domain as the record says; without the log of its console, nothing is made."""
    chains = {disk.role: host.disks.chain(disk) for disk in server.disks}
    return domain_xml(without_operation(server), host.records.owner, log, chains)


def refuse_overlays(host: Host, server: Server) -> None:
    """Before its guest is powered off: it could not be started again."""
    present = host.domains.description(server.id, defined=True)
    _refuse_overlays(present, describe(host, server))


def _refuse_overlays(present: DomainXml | None, wanted: DomainXml) -> None:
    if present and (overlaid := ", ".join(find_overlays(present, wanted))):
        raise DiskOverlaid(wanted.name, overlaid)


def _former(host: Host, present: DomainXml | None) -> DomainXml | None:
    """By the copy of the record that the domain has: as it was last defined."""
    if present is None or present.record is None:
        return None
    where = Path(f"metadata of domain {present.name}")
    try:
        copied = codec.decode_server(present.record.record.encode(), where)
    except UnreadableRecord as error:
        LOG.debug("taken as it is on record now: %s", error)
        return None
    return former_xml(copied, host.records.owner)


def _with_machine(host: Host, server: Server, domain: DomainXml | None) -> Server:
    """With the full name of its machine type. Of a record that says less, the one that its domain
    has had so far: a guest finds the hardware that it knows."""
    hardware = server.hardware
    full = host.full_machine_name(hardware.virt_type, hardware.machine)
    if full == hardware.machine:
        return server
    machine = (domain.machine if domain else None) or full
    return replace(server, hardware=replace(hardware, machine=machine))


def undefine(host: Host, server: Server) -> None:
    """What is in pools stays."""
    host.domains.undefine(server.id, keeps_variables=server.keeps_variables)
    free_addresses(host, server.networks)
    host.consoles.remove(server.id)


def write_metadata(host: Host, server: Server) -> None:
    """The copy of the record in the domain follows."""
    host.domain_records.put(server.id, record_xml(server, host.records.owner))


def sync_autostart(host: Host, server: Server) -> None:
    """libvirt starts with the host what should run and starts with it, and nothing else."""
    host.autostart.put(server.id, server.starts_with_host)


def power_on(host: Host, server: Server) -> Server:
    """From now on it should run."""
    try:
        with host.starts.hold():
            host.domains.start(server.id)
    except LibvirtFailed as error:  # which knows it by its id only
        raise LibvirtFailed(f"starting server {server.name}", error.code, error.detail) from error
    on = replace(server, should_run=True)
    sync_autostart(host, on)
    return on


def power_off(host: Host, server: Server) -> None:
    host.domains.power_off(server.id)
