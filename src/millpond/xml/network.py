"""What we read of a host's <network> and <interface>, and the DHCP <host> that we write."""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class ReservationXml(Element, tag="host"):
    """The address that DHCP gives one interface."""

    mac: str | None = at("@mac", default=None)
    name: str | None = at("@name", default=None)
    address: str | None = at("@ip", default=None)


@dataclass(frozen=True, kw_only=True)
class RangeXml(Element, tag="range"):
    start: str = at("@start")
    end: str = at("@end")


@dataclass(frozen=True, kw_only=True)
class IpXml(Element, tag="ip"):
    family: str | None = at("@family", default=None)
    address: str | None = at("@address", default=None)
    netmask: str | None = at("@netmask", default=None)
    prefix: int | None = at("@prefix", default=None)
    dhcp: bool = at("dhcp", default=False)
    ranges: tuple[RangeXml, ...] = at("dhcp/range", default=())
    reservations: tuple[ReservationXml, ...] = at("dhcp/host", default=())


@dataclass(frozen=True, kw_only=True)
class NetworkXml(Element, tag="network"):
    name: str = at("name")
    forward: str | None = at("forward/@mode", default=None)
    bridge: str | None = at("bridge/@name", default=None)
    dns: str | None = at("dns/@enable", default=None)
    addresses: tuple[IpXml, ...] = at("ip", default=())


@dataclass(frozen=True, kw_only=True)
class HostInterfaceXml(Element, tag="interface"):
    """A network device of the host."""

    type: str = at("@type")
    name: str = at("@name")
