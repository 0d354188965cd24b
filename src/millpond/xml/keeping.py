"""A definition as it is to be: what the server's record speaks of as we write it, and everything
else as it stands in the present one.

``before`` is what the record said when the present one was written, with the disks, but not their
layers: what was ours then and is not any more goes, and what differs from it somebody has changed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from lxml import etree

from millpond.model.sizes import KiB, format_size
from millpond.xml.domain import (
    COMMAND_LINE,
    NAMESPACE,
    PUBLISHED,
    BackingStoreXml,
    DiskXml,
    DomainXml,
    InterfaceXml,
    SourceXml,
)
from millpond.xml.element import parse, put

_DEFAULTS = (
    "acpi",
    "apic",
    "cpu_mode",
    "clock",
    "on_poweroff",
    "on_reboot",
    "on_crash",
    "rng",
    "rng_backend",
    "rng_source",
)
"""Fields that we write first, and no record speaks of: afterwards they are the operator's."""

_WITH_FORMAT = ("file", "block", "volume", "network")
"""Types of disks of which QEMU must be told the format."""

_LAYERS = ("source", "backingStore", "readonly")
"""What we say of a disk, and nobody else."""

Lost = Iterator[str]
"""What somebody changed and cannot be kept, because the record says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    xml: str
    lost: tuple[str, ...]


def written_defaults(domain: DomainXml) -> str:
    """What we wrote that no record speaks of: who finds it changed knows that it was not us."""
    values = ((name, getattr(domain, name)) for name in _DEFAULTS)
    return " ".join(f"{name}={value}" for name, value in values if value)


def keep(present: str, ours: DomainXml, before: DomainXml) -> Kept:
    """``present`` is the inactive XML with its secrets, which would be lost otherwise."""
    root = parse(present)
    there = DomainXml.from_node(root)
    root.set("type", ours.type)
    devices = _child(root, "devices")
    lost = (
        *_put_name(root, there, ours, before),
        *_put_memory(root, ours, before),
        *_put_vcpus(root, ours, before),
        *_put_boot(root, ours, before),
        *_put_machine(root, ours, before),
        *_put_disks(devices, ours, before),
        *_put_interfaces(devices, ours, before),
        *_put_serial(devices, ours),
    )
    _put_defaults(root, there, ours)
    _put_metadata(root, ours)
    _put_controllers(devices, ours)
    _put_arguments(root, ours)
    etree.indent(root)
    return Kept(xml=etree.tostring(root, encoding="unicode"), lost=lost)


def _child(parent: etree._Element, tag: str) -> etree._Element:
    found = parent.find(tag)
    return etree.SubElement(parent, tag) if found is None else found


def _remove(parent: etree._Element, *tags: str) -> None:
    for tag in tags:
        for each in parent.findall(tag):
            parent.remove(each)


def _place(source: SourceXml | None) -> str:
    """The volume's name, or a path, or a name in the network."""
    if source is None:
        return ""
    return source.volume or source.file or source.device or source.name or ""


def _is_same_place(one: SourceXml | None, other: SourceXml | None) -> bool:
    """A volume may be named by its path, too."""
    places = [_place(one), _place(other)]
    if any(each and each.volume for each in (one, other)):
        places = [os.path.basename(each) for each in places]
    return places[0] == places[1]


def find_overlays(there: DomainXml, ours: DomainXml) -> Iterator[str]:
    """Disks of ours that something lies above that is not ours: what is in there would be lost,
    and spoilt if the disk was written to without it."""
    for disk in ours.disks:
        found = there.disk(disk.target)
        if not found or _is_same_place(found.source, disk.source):
            continue
        below = (_is_same_place(each, disk.source) for each in _sources(found.backing))
        if _is_somebody_elses(found, ours.uuid) and any(below):
            yield f"{disk.target} by {_place(found.source)}"


def _sources(layer: BackingStoreXml | None) -> Iterator[SourceXml]:
    while layer:
        if layer.source:
            yield layer.source
        layer = layer.below


def _put_name(root: etree._Element, there: DomainXml, ours: DomainXml, before: DomainXml) -> Lost:
    """One that Nova made still has Nova's name for it when we first write it."""
    if there.record and there.record.written and there.name not in (ours.name, before.name):
        yield f"the name {there.name!r}"
    _child(root, "name").text = ours.name


def _put_metadata(root: etree._Element, ours: DomainXml) -> None:
    metadata = _child(root, "metadata")
    _remove(metadata, f"{{{NAMESPACE}}}server")
    if ours.record:
        metadata.append(ours.record.to_node())


def _put_memory(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """What a balloon leaves the guest stays, if it is less."""
    memory, current = _child(root, "memory"), root.find("currentMemory")
    present, wanted, was = int(memory.text or 0), _in_kib(ours), _in_kib(before)
    if present == wanted:
        return
    if present != was:
        yield f"{format_size(present * KiB)} of memory"
    memory.text = str(wanted)
    memory.set("unit", "KiB")
    if current is not None and (current.text == str(present) or int(current.text or 0) > wanted):
        root.remove(current)


def _in_kib(domain: DomainXml) -> int:
    """We write bytes, and libvirt rounds up."""
    return -(-domain.memory // KiB)


def _put_vcpus(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    vcpu, topology = _child(root, "vcpu"), root.find("cpu/topology")
    if vcpu.text != str(ours.vcpus):
        if vcpu.text != str(before.vcpus):
            yield f"{vcpu.text} vCPUs"
        vcpu.text = str(ours.vcpus)
        vcpu.attrib.pop("current", "")
        _remove(root, "vcpus")
    if topology is not None and _vcpus_of(topology) != ours.vcpus:
        yield "the topology of the CPU"
        _remove(_child(root, "cpu"), "topology")


def _vcpus_of(topology: etree._Element) -> int:
    product = 1
    for each in ("sockets", "dies", "clusters", "cores", "threads"):
        product *= int(topology.get(each) or 1)
    return product


def _put_boot(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """UEFI may be libvirt's choice of it, or one that is named."""
    boot = _child(root, "os")
    loader = boot.find("loader")
    named = loader is not None and loader.get("type") == "pflash"
    if bool(ours.firmware) != (named or boot.get("firmware") == "efi"):
        if ours.firmware == before.firmware:
            yield "the firmware"
        _remove(boot, "loader", "nvram", "firmware")
        boot.attrib.pop("firmware", "")
        if ours.firmware:
            boot.set("firmware", ours.firmware)
    for tag, wanted, was in (
        ("kernel", ours.kernel, before.kernel),
        ("initrd", ours.initrd, before.initrd),
        ("cmdline", ours.command_line, before.command_line),
    ):
        if wanted:
            line = _child(boot, tag)
            if line.text not in (None, was) and not _is_same_file(line.text, wanted):
                yield f"{tag} {line.text}"
            line.text = wanted
        elif was:
            _remove(boot, tag)


def _is_same_file(present: str | None, wanted: str) -> bool:
    """In whatever directory: the pool may have moved."""
    return os.path.basename(present or "") == os.path.basename(wanted)


def _put_machine(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """Another machine has other buses, on which devices have other addresses."""
    kind = _child(_child(root, "os"), "type")
    present = kind.get("machine")
    if not ours.machine or present == ours.machine:
        return
    if present != before.machine:
        yield f"the machine type {present}"
    kind.set("machine", ours.machine)
    devices = _child(root, "devices")
    _remove(devices, "controller")
    for address in list(devices.iter("address")):
        device = address.getparent()
        if device is not None and device.tag != "source":  # of the host's own, passed through
            device.remove(address)


def _put_defaults(root: etree._Element, there: DomainXml, ours: DomainXml) -> None:
    """Those that are as we last wrote them follow what we write now. A version that did not note
    what it wrote has written the same."""
    noted = (there.record and there.record.written) or written_defaults(ours)
    was = dict(each.split("=", 1) for each in noted.split())
    for name in _DEFAULTS:
        present, wanted = getattr(there, name), getattr(ours, name)
        if wanted != present and was.get(name) == (str(present) if present else None):
            put(root, DomainXml, name, wanted)


def _put_disks(devices: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    wanted = {each.target: each for each in ours.disks}
    known = {each.target for each in before.disks}
    missing = known & wanted.keys()
    for node in devices.findall("disk"):
        found = DiskXml.from_node(node)
        missing.discard(found.target)
        disk = wanted.get(found.target)
        if disk and (found.bus, found.device) == (disk.bus, disk.device):
            yield from _describe_other_source(found, disk, ours.uuid)
            _put_layers(node, wanted.pop(found.target))
        elif not disk and _is_somebody_elses(found, ours.uuid):
            if not _states_its_format(found):
                yield f"{_describe(found)}, whose format is not stated"
                devices.remove(node)
        else:
            if disk or found.target not in known:
                yield f"{_describe(found)} on {found.bus}"
            devices.remove(node)
    yield from (f"the removal of disk {each}" for each in sorted(missing))
    ordered = devices.find("*/boot") is not None or devices.find("../os/boot") is not None
    for disk in wanted.values():
        devices.append((replace(disk, boot_order=None) if ordered else disk).to_node())


def _describe(disk: DiskXml) -> str:
    return f"{disk.device} {disk.target} at {_place(disk.source) or 'nothing'}"


def _describe_other_source(found: DiskXml, disk: DiskXml, server: str) -> Lost:
    if _is_somebody_elses(found, server) and not _is_same_place(found.source, disk.source):
        yield _describe(found)


def _is_somebody_elses(disk: DiskXml, server: str) -> bool:
    """A volume of this server's is known by its name (B17)."""
    return not os.path.basename(_place(disk.source)).startswith(f"{server}_")


def _states_its_format(disk: DiskXml) -> bool:
    return bool(disk.driver_type or disk.type not in _WITH_FORMAT or not _place(disk.source))


def _put_layers(node: etree._Element, disk: DiskXml) -> None:
    """How it is cached, limited, ordered and addressed stays."""
    _remove(node, *_LAYERS)
    node.set("type", disk.type)
    driver = _child(node, "driver")
    driver.set("name", disk.driver_name)
    if disk.driver_type:
        driver.set("type", disk.driver_type)
    if disk.serial:
        _child(node, "serial").text = disk.serial
    node.extend([each for each in disk.to_node() if each.tag in _LAYERS])


def _put_interfaces(devices: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """By their MAC; those of a record that has none by their order."""
    known = {(each.mac or "").lower(): each for each in before.interfaces if each.mac}
    wanted = {(each.mac or "").lower(): each for each in ours.interfaces if each.mac}
    nameless = [each for each in ours.interfaces if not each.mac]
    for node in devices.findall("interface"):
        mac = (InterfaceXml.from_node(node).mac or "").lower()
        if mac in wanted:
            yield from _put_interface(node, wanted.pop(mac), known.get(mac))
        elif mac in known:
            devices.remove(node)
        elif nameless:
            yield from _put_interface(node, nameless.pop(0), None)
    yield from (f"the removal of interface {each}" for each in wanted if each in known)
    devices.extend([each.to_node() for each in (*wanted.values(), *nameless)])


def _put_interface(node: etree._Element, ours: InterfaceXml, before: InterfaceXml | None) -> Lost:
    """What we say of it; a part that says that and more stays."""
    changed = [] if node.get("type") == ours.type else ["type"]
    node.set("type", ours.type)
    written = ours.to_node()
    for tag in dict.fromkeys(str(each.tag) for each in (*written, *(before or ours).to_node())):
        present, wanted = node.findall(tag), written.findall(tag)
        if len(present) == len(wanted) and all(map(_contains, present, wanted)):
            continue
        changed += [tag]
        _remove(node, tag)
        node.extend(wanted)
    if changed and ours == before:
        yield f"the {' and '.join(changed)} of interface {ours.mac}"


def _contains(present: etree._Element, wanted: etree._Element) -> bool:
    return (
        set(wanted.items()) <= set(present.items())
        and (wanted.text or "").strip() in ("", (present.text or "").strip())
        and all(any(_contains(each, child) for each in present) for child in wanted)
    )


def _put_arguments(root: etree._Element, ours: DomainXml) -> None:
    """The NIC whose ports are published, in two pairs of words; all others stay."""
    line = _child(root, COMMAND_LINE)
    words = line.findall("{*}arg")
    for flag, value in pairwise(words):
        if f"={PUBLISHED}," in f"{value.get('value')},":
            line.remove(flag)
            line.remove(value)
    line.extend([each.to_node() for each in ours.arguments])
    if len(line) == 0:
        root.remove(line)


def _put_controllers(devices: etree._Element, ours: DomainXml) -> None:
    there = {each.get("type") for each in devices.findall("controller")}
    devices.extend([each.to_node() for each in ours.controllers if each.type not in there])


def _put_serial(devices: etree._Element, ours: DomainXml) -> Lost:
    """The first one is the console, and libvirt makes the element of that name from it."""
    (wanted,) = ours.serials
    first = devices.find("serial")
    if first is None or first.get("type") != wanted.type:
        if first is not None:
            devices.remove(first)
        yield "the change of the serial port"
        devices.insert(0, wanted.to_node())
    elif wanted.log:
        log = _child(first, "log")
        log.set("file", wanted.log)
        log.set("append", wanted.log_append or "off")
    for console in devices.findall("console"):
        target = console.find("target")
        if target is None or target.get("type", "serial") == "serial":
            devices.remove(console)
