"""The libvirt networks of one host, its bridges, and the addresses that its DHCP has leased."""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from typing import Any
from urllib.parse import urlsplit

from millpond.errors import LibvirtFailed, MillpondError, NetworkInactive, NetworkNotFound
from millpond.libvirt.domain_nics import DomainNics
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.arp import read_arp_table
from millpond.system.libvirtd import Libvirtd
from millpond.xml.network import HostInterfaceXml, IpXml, NetworkXml, ReservationXml


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNetwork:
    """A network as libvirt has defined it on a host."""

    name: str
    active: bool
    autostart: bool
    forward: str = ""
    """nat, route, open, bridge, …; empty: isolated."""
    bridge: str = ""
    addresses: tuple[str, ...] = ()
    """The host's own on it, with their prefixes: 192.168.122.1/24."""
    dhcp: bool = False
    dns: bool = True
    """Whether it answers at these addresses."""
    reserved: tuple[tuple[str, str], ...] = ()
    """MAC and address of each interface that DHCP gives always the same."""

    @property
    def interface(self) -> IPv4Interface | None:
        """The host's own IPv4 address on it."""
        found = map(ip_interface, self.addresses)
        return next((each for each in found if isinstance(each, IPv4Interface)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    network: str
    mac: str
    address: str
    hostname: str = ""
    expires: int = 0
    """In seconds since 1970."""


class Networks:
    def __init__(self, host: Libvirtd, name: str) -> None:
        self._host = host
        self._name = name
        self.nics = DomainNics(host)

    def all(self) -> list[HostNetwork]:
        """By name. A host whose libvirt has no networks at all has none."""
        try:
            with self._host.calling("listing networks") as connection:
                found = [_describe(each) for each in connection.listAllNetworks(0)]
        except LibvirtFailed as error:
            if error.code != libvirtd.NO_SUPPORT:
                raise
            return []
        return sorted(found, key=lambda each: each.name)

    def get(self, name: str) -> HostNetwork:
        with self._get(name, "looking at") as network:
            return _describe(network)

    def get_active(self, name: str) -> HostNetwork:
        """Raises NetworkInactive, too."""
        found = self.get(name)
        if not found.active:
            raise NetworkInactive(name, self._name)
        return found

    def bridges(self) -> tuple[str, ...] | None:
        """Those of the host, also those of its networks; None where libvirt cannot say."""
        try:
            with self._host.calling("listing the host's interfaces") as connection:
                found = [
                    HostInterfaceXml.from_xml(each.XMLDesc(0))
                    for each in connection.listAllInterfaces(0)
                ]
        except LibvirtFailed:  # not every libvirt has the driver for it
            return None
        return tuple(sorted(each.name for each in found if each.type == "bridge"))

    def check_bridge(self, name: str) -> None:
        """Guests have interfaces on the host, too: all are listed only if this one is missing."""
        with suppress(LibvirtFailed), self._host.calling("looking for a bridge") as connection:
            found = HostInterfaceXml.from_xml(connection.interfaceLookupByName(name).XMLDesc(0))
            if found.type == "bridge":
                return
        known = self.bridges()
        if known is not None and name not in known:
            raise NetworkNotFound("bridge", name, self._name, known)

    def start(self, name: str) -> None:
        """One that is active already is no error."""
        with self._get(name, "starting", slow=True) as network:
            if not network.isActive():
                network.create()

    def stop(self, name: str) -> None:
        """One that is not active is no error. Guests that use it lose their connection."""
        with self._get(name, "stopping", slow=True) as network:
            if network.isActive():
                network.destroy()

    def set_autostart(self, name: str, wanted: bool) -> None:
        with self._get(name, "setting autostart of") as network:
            network.setAutostart(wanted)

    def reserve(self, name: str, mac: str, address: str) -> None:
        """Let DHCP give this NIC this address; again is no error, nor a network that is gone or
        has no DHCP."""
        with suppress(NetworkNotFound), self._get(name, "reserving an address in") as network:
            for flags, found in _definitions(network):
                known = dict(_reserved(found.addresses))
                if known.get(mac) == address or not any(each.dhcp for each in found.addresses):
                    continue
                command = libvirtd.MODIFY if mac in known else libvirtd.ADD
                _update(network, command, ReservationXml(mac=mac, address=address), flags)

    def free(self, name: str, mac: str) -> None:
        """What was reserved; nothing reserved is no error."""
        with suppress(NetworkNotFound), self._get(name, "freeing an address in") as network:
            for flags, found in _definitions(network):
                if mac in dict(_reserved(found.addresses)):
                    _update(network, libvirtd.DELETE, ReservationXml(mac=mac), flags)

    def leases(self, name: str) -> list[Lease]:
        """Of a network that is not active, or gone, there are none."""
        try:
            with self._host.calling(f"asking for the leases of network {name}") as connection:
                found = connection.networkLookupByName(name).DHCPLeases()
        except LibvirtFailed:
            return []
        return [
            Lease(
                network=name,
                mac=each["mac"] or "",
                address=each["ipaddr"],
                hostname=each["hostname"] or "",
                expires=each["expirytime"],
            )
            for each in found
        ]

    def heard(
        self, wanted: Mapping[ServerId, Collection[str]], seconds: float
    ) -> dict[str, tuple[str, ...]]:
        """The addresses of these MACs of running domains, as far as the host's ARP table or a
        guest's agent knows them, and says so within so many seconds. A guest may let its agent
        hang: then the thread goes with the process."""
        found: dict[str, tuple[str, ...]] = {}

        def ask() -> None:
            if not urlsplit(self._host.uri).hostname:  # libvirt 9.0 cannot read all tables
                local = read_arp_table()
                wanted_macs = (mac for macs in wanted.values() for mac in macs)
                found.update((mac, local[mac]) for mac in wanted_macs if mac in local)
            for source in (libvirtd.FROM_ARP, libvirtd.FROM_AGENT):
                for id, macs in wanted.items():
                    if any(mac not in found for mac in macs):
                        answer = self._ask_domain(id, source)
                        found.update((mac, answer[mac]) for mac in macs if answer.get(mac))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(seconds)
        return found.copy()

    def _ask_domain(self, id: ServerId, source: int) -> dict[str, tuple[str, ...]]:
        """Nothing, if that source knows nothing, or is none here."""
        with suppress(MillpondError):
            with self._host.calling("asking for addresses", slow=True) as connection:
                found = connection.lookupByUUIDString(id).interfaceAddresses(source, 0)
            return {
                (each["hwaddr"] or "").lower(): tuple(_reachable(each["addrs"] or ()))
                for each in found.values()
            }
        return {}

    @contextmanager
    def _get(self, name: str, doing: str, *, slow: bool = False) -> Iterator[Any]:
        try:
            with self._host.calling(f"{doing} network {name}", slow=slow) as connection:
                yield connection.networkLookupByName(name)
        except LibvirtFailed as error:
            if error.code not in (libvirtd.NO_SUCH_NETWORK, libvirtd.NO_SUPPORT):
                raise
            known = tuple(each.name for each in self.all())
            raise NetworkNotFound("libvirt network", name, self._name, known) from error


def _definitions(network: Any) -> Iterator[tuple[int, NetworkXml]]:
    """As it is now, and as it will be the next time that it starts."""
    if network.isActive():
        yield libvirtd.NETWORK_LIVE, NetworkXml.from_xml(network.XMLDesc(0))
    if network.isPersistent():
        kept = network.XMLDesc(libvirtd.NETWORK_XML_INACTIVE)
        yield libvirtd.NETWORK_CONFIG, NetworkXml.from_xml(kept)


def _update(network: Any, command: int, host: ReservationXml, flags: int) -> None:
    network.update(command, libvirtd.DHCP_HOST, -1, host.to_xml(), flags)


def _reachable(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Without those that mean something inside the guest or on its link only."""
    for each in found:
        with suppress(ValueError):  # a guest may say anything
            address = ip_address(each["addr"].partition("%")[0])  # its zone is the guest's own
            if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                yield str(address)


def _describe(network: Any) -> HostNetwork:
    found = NetworkXml.from_xml(network.XMLDesc(0))
    return HostNetwork(
        name=found.name,
        active=bool(network.isActive()),
        autostart=bool(network.isPersistent() and network.autostart()),
        forward=found.forward or "",
        bridge=found.bridge or "",
        addresses=tuple(filter(None, map(_with_prefix, found.addresses))),
        dhcp=any(each.dhcp for each in found.addresses),
        dns=found.dns != "no",
        reserved=tuple(_reserved(found.addresses)),
    )


def _with_prefix(found: IpXml) -> str:
    if not found.address:
        return ""
    mask = found.netmask or found.prefix
    plain: IPv4Interface | IPv6Interface = ip_interface(
        f"{found.address}/{mask}" if mask else found.address
    )
    return str(plain)


def _reserved(addresses: Sequence[IpXml]) -> Iterator[tuple[str, str]]:
    for each in addresses:
        for host in each.reservations:
            yield (host.mac or "").lower(), host.address or ""
