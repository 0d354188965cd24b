"""What ``--network`` says of a NIC, and ``--publish`` of its ports."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, NetmaskValueError
from itertools import combinations

from millpond.errors import BadOption
from millpond.model.server import Network, NetworkKind, PortForward

PUBLISH_HELP = (
    "[ADDRESS:]PORT:GUEST_PORT[/udp] of the network 'user', at 127.0.0.1 if no address is said; "
    "repeatable."
)
HELP = (
    "none, user, bridge:BRIDGE or a libvirt network, with ',mac=MAC' and ',ip=ADDRESS' for fixed "
    "ones; repeatable."
)

_NAME = re.compile(r"[\w.+-]+")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PUBLISH = re.compile(
    r"(?:(?P<address>[\d.]+):)?(?P<port>\d{1,5}):(?P<guest>\d{1,5})(?:/(?P<protocol>tcp|udp))?"
)
_LEAST_PORT = 1024
_LOOPBACK = "127.0.0.1"
_KEYS = ("mac", "ip", "gateway", "dns")


def parse_network(text: str) -> Network | None:
    """``none``, ``user``, ``bridge:BR`` or the name of a libvirt network, each but the first
    with what is fixed: ``default,mac=52:54:00:12:34:56,ip=192.168.122.50``. Of a bridge nobody
    knows more: ``bridge:br0,ip=10.0.0.5/24,gateway=10.0.0.1,dns=10.0.0.1``."""
    name, *rest = text.split(",")
    said = _parse_pairs(rest)
    found = _parse_source(name)
    if found is None:
        if said:
            raise _bad("no NIC, so nothing of it can be fixed", "leave out what follows 'none'")
        return None
    if found.kind is NetworkKind.USER and said.keys() - {"mac"}:
        raise _bad("addresses of the network 'user' are QEMU's", "leave out all but mac=")
    if not said.get("ip") and said.keys() & {"gateway", "dns"}:
        raise _bad("gateway= and dns= are for a fixed address", "add ip=ADDRESS/PREFIX")
    return Network(
        kind=found.kind,
        source=found.source,
        mac=_parse_mac(said["mac"]) if "mac" in said else "",
        address=_parse_address(said["ip"]) if "ip" in said else "",
        gateway=_parse_plain(said["gateway"]) if "gateway" in said else "",
        nameservers=tuple(map(_parse_plain, said["dns"].split("+"))) if "dns" in said else (),
    )


def publish_ports(networks: Sequence[Network], texts: Sequence[str]) -> tuple[Network, ...]:
    """With these ports of the host leading to the first NIC in the user network."""
    ports = tuple(map(_parse_port_forward, texts))
    for each, other in combinations(ports, 2):
        if each.overlaps(other):
            raise _bad_port(f"{each} and {other} are one port", "publish each once")
    kinds = [each.kind for each in networks]
    if ports and NetworkKind.USER not in kinds:
        reason = "ports are published of the network 'user' only, and the server is not in it"
        raise _bad_port(reason, "leave it out, or add --network user")
    first = kinds.index(NetworkKind.USER) if ports else None
    return tuple(
        replace(each, ports=ports) if number == first else each
        for number, each in enumerate(networks)
    )


def _parse_port_forward(text: str) -> PortForward:
    """``2222:22``, ``0.0.0.0:2222:22``, ``5353:53/udp``."""
    said = _PUBLISH.fullmatch(text)
    if said is None or not all(0 < int(said[each]) < 65536 for each in ("port", "guest")):
        advised = "write [ADDRESS:]PORT:GUEST_PORT[/udp], such as 2222:22"
        raise _bad_port(f"{text!r} says no ports", advised)
    if int(said["port"]) < _LEAST_PORT:
        reason = f"QEMU is not root, and has no port below {_LEAST_PORT}"
        raise _bad_port(reason, f"choose another one than {said['port']}")
    try:
        address = str(IPv4Address(said["address"] or _LOOPBACK))
    except AddressValueError as error:
        reason = f"{said['address']} is no IPv4 address"
        raise _bad_port(reason, "leave it out, or say 0.0.0.0") from error
    return PortForward(
        address=address,
        port=int(said["port"]),
        guest=int(said["guest"]),
        protocol=said["protocol"] or "tcp",
    )


def _parse_pairs(words: list[str]) -> Mapping[str, str]:
    pairs = [word.partition("=") for word in words]
    for key, equals, value in pairs:
        if key not in _KEYS or not equals or not value:
            known = ", ".join(f"{each}=" for each in _KEYS)
            raise _bad(f"{key + equals + value!r} says nothing of a NIC", f"known: {known}")
    found = {key: value for key, _, value in pairs}
    if len(found) < len(pairs):
        raise _bad("something is said twice", "say each once; dns=ONE+OTHER has several")
    return found


def _parse_source(text: str) -> Network | None:
    if text == "none":
        return None
    if text == "user":
        return Network(kind=NetworkKind.USER)
    kind, colon, bridge = text.partition(":")
    if kind == "bridge" and colon and _NAME.fullmatch(bridge):
        return Network(kind=NetworkKind.BRIDGE, source=bridge)
    if not _NAME.fullmatch(text):
        advice = "write none, user, bridge:BRIDGE or the name of a libvirt network"
        raise _bad(f"{text!r} is no network", advice)
    return Network(kind=NetworkKind.NETWORK, source=text)


def _parse_mac(text: str) -> str:
    """Of one interface, and none that begins with fe: libvirt keeps those for the host's end."""
    mac = text.lower()
    if not _MAC.fullmatch(mac) or not mac.strip("0:"):
        raise _bad(f"{text!r} is no MAC address", "write six bytes, such as 52:54:00:12:34:56")
    if int(mac[:2], 16) & 1 or mac.startswith("fe:"):
        raise _bad(f"{text} cannot be a NIC's MAC address", "begin with 52:54:00, as QEMU does")
    return mac


def _parse_address(text: str) -> str:
    try:
        return str(IPv4Interface(text)) if "/" in text else str(IPv4Address(text))
    except (AddressValueError, NetmaskValueError) as error:
        raise _not_ipv4(text) from error


def _parse_plain(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError as error:
        raise _not_ipv4(text) from error


def _not_ipv4(text: str) -> BadOption:
    return _bad(f"{text!r} is no IPv4 address", "write such as 192.168.122.50")


def _bad_port(reason: str, advised: str) -> BadOption:
    return BadOption("--publish", reason, advised)


def _bad(reason: str, advised: str) -> BadOption:
    return BadOption("--network", reason, advised)
