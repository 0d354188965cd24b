"""A definition that goes to another host with its server."""

from collections.abc import Collection, Iterator, Mapping

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


def find_volumes(definition: str) -> dict[str, str]:
    """By the device that the guest sees: the names of volumes that disks are, or that files or
    devices have."""
    found = child(parse(definition), "devices").findall("disk")
    named = ((_get(each, "target", "dev"), _volume(each)) for each in found)
    return {target: volume for target, volume in named if target and volume}


def _volume(disk: etree._Element) -> str:
    path = _get(disk, "source", "file") or _get(disk, "source", "dev") or ""
    return _get(disk, "source", "volume") or path.rpartition("/")[2]


def name_by_path(definition: str, paths: Mapping[str, str], devices: Collection[str]) -> str:
    """These disks by the files of their volumes, or by devices."""
    root = parse(definition)
    for disk in child(root, "devices").findall("disk"):
        target = _get(disk, "target", "dev") or ""
        if target in paths:
            kind, name = ("block", "dev") if target in devices else ("file", "file")
            disk.set("type", kind)
            source = child(disk, "source")
            source.attrib.clear()
            source.set(name, paths[target])
    return etree.tostring(root, encoding="unicode")


def without_backing(definition: str, targets: Collection[str]) -> str:
    """These disks are whole by themselves."""
    root = parse(definition)
    for disk in child(root, "devices").findall("disk"):
        if _get(disk, "target", "dev") in targets:
            remove(disk, "backingStore")
            etree.SubElement(disk, "backingStore")
    return etree.tostring(root, encoding="unicode")


def _get(node: etree._Element, path: str, name: str) -> str | None:
    found = node.find(path)
    return None if found is None else found.get(name)
