"""A running domain as another host is to run it: everything that its guest sees stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lxml import etree

from millpond.xml.domain import DiskXml
from millpond.xml.element import parse
from millpond.xml.tree import child, remove


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesXml:
    """What lies elsewhere there."""

    disks: Mapping[str, DiskXml] = field(default_factory=dict)
    """By their targets."""
    log: str | None = None
    """Of the console."""
    nvram: str | None = None
    kernel: str | None = None
    initrd: str | None = None


def move(running: str, places: PlacesXml) -> str:
    root = parse(running)
    devices = child(root, "devices")
    remove(devices, "emulator")  # each host knows its own
    _put_disks(root, places.disks)
    _put_error_policies(devices, places.disks)
    for log in devices.findall("*/log"):
        if places.log:
            log.set("file", places.log)
    for tag in ("nvram", "kernel", "initrd"):
        if path := getattr(places, tag):
            child(child(root, "os"), tag).text = path
    return etree.tostring(root, encoding="unicode")


def put_layers(definition: str, disks: Mapping[str, DiskXml]) -> str:
    """Where the bytes of these disks are, by their targets; nothing else is changed."""
    root = parse(definition)
    _put_disks(root, disks)
    return etree.tostring(root, encoding="unicode")


def _put_disks(root: etree._Element, disks: Mapping[str, DiskXml]) -> None:
    for disk in child(root, "devices").findall("disk"):
        target = disk.find("target")
        if target is not None and (there := disks.get(target.get("dev", ""))):
            disk.set("type", there.type)
            remove(disk, "source", "backingStore")
            written = there.to_node()
            disk.extend([each for each in written if each.tag in ("source", "backingStore")])


def _put_error_policies(devices: etree._Element, disks: Mapping[str, DiskXml]) -> None:
    """It may come to a stream there."""
    for disk in devices.findall("disk"):
        there = disks.get(DiskXml.from_node(disk).target)
        if there and there.error_policy and there.read_error_policy:
            driver = child(disk, "driver")
            driver.set("error_policy", there.error_policy)
            driver.set("rerror_policy", there.read_error_policy)


def find_cpu(running: str) -> str | None:
    """As its guest sees it."""
    cpu = parse(running).find("cpu")
    return None if cpu is None else etree.tostring(cpu, encoding="unicode")
