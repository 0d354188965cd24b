"""A definition that goes to another host with its server."""

from collections.abc import Collection, Iterator

from lxml import etree

from millpond.xml.element import parse
from millpond.xml.tree import child, remove

_OF_A_HOST = ("hostdev", "filesystem", "shmem")
"""Devices that are parts of the host: another one has others."""


def without_paths(definition: str) -> str:
    """Without the emulator, of which each host knows its own."""
    root = parse(definition)
    remove(child(root, "devices"), "emulator")
    return etree.tostring(root, encoding="unicode")


def find_fixed_devices(definition: str, macs: Collection[str]) -> Iterator[str]:
    """Those that cannot go along, in words; ``macs``: of NICs that can."""
    devices = child(parse(definition), "devices")
    for tag in _OF_A_HOST:
        if found := devices.findall(tag):
            yield f"{len(found)} {tag}"
    for interface in devices.findall("interface"):
        mac = interface.find("mac")
        address = (mac.get("address") if mac is not None else None) or "without a MAC"
        if address.lower() not in macs:
            yield f"interface {address}"
