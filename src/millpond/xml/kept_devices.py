"""The devices of a definition as they are to be: ours as we write them, others as they are."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lxml import etree

from millpond.xml.domain import (
    STOP,
    BackingStoreXml,
    DiskXml,
    DomainXml,
    InterfaceXml,
    SourceXml,
)
from millpond.xml.element import Element
from millpond.xml.tree import child, contains, remove

_WITH_FORMAT = ("file", "block", "volume", "network")
"""Types of disks of which QEMU must be told the format."""

_LAYERS = ("source", "backingStore", "readonly")
"""What we say of a disk, and nobody else."""

Lost = Iterator[str]
"""What somebody changed and cannot be kept, because the record says otherwise."""


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


def put_device(
    devices: etree._Element, words: str, ours: Sequence[Element], before: Sequence[Element]
) -> Lost:
    """One that the record speaks of, or spoke of before; its further attributes stay."""
    if not ours and not before:
        return
    (any_,) = ours or before
    kind = any_.to_node().get("type")
    present = [each for each in devices.findall(any_.tag) if each.get("type") == kind]
    if not ours:
        for each in present[:1]:
            devices.remove(each)
        return
    written = any_.to_node()
    if present and contains(present[0], written):
        return
    if tuple(ours) == tuple(before):
        yield words
    if not present:
        devices.append(written)
        return
    remove(present[0], "listen", *(str(each.tag) for each in written))
    present[0].attrib.pop("port", "")
    for name, value in written.items():
        present[0].set(name, value)
    present[0].extend(list(written))


def put_channels(devices: etree._Element, ours: DomainXml) -> None:
    there = {each.get("name") for each in devices.findall("channel/target")}
    devices.extend([each.to_node() for each in ours.channels if each.name not in there])


def put_disks(
    devices: etree._Element, ours: DomainXml, before: DomainXml, stopping: Collection[str] = ()
) -> Lost:
    """``stopping``: the targets of those that we gave their error policy."""
    wanted = {each.target: each for each in ours.disks}
    known = {each.target: each.source for each in before.disks}
    missing = known.keys() & wanted.keys()
    for node in devices.findall("disk"):
        found = DiskXml.from_node(node)
        missing.discard(found.target)
        disk = wanted.get(found.target)
        if disk and (found.bus, found.device) == (disk.bus, disk.device):
            if not _is_same_place(found.source, known.get(found.target)):
                yield from _describe_other_source(found, disk, ours.uuid)
            _put_layers(node, wanted.pop(found.target))
            yield from _put_error_policy(node, found, disk, found.target in stopping)
        elif not disk and _is_somebody_elses(found, ours.uuid):
            if not _states_its_format(found):
                yield f"{_describe(found)}, whose format is not stated"
                devices.remove(node)
        else:
            if disk or found.target not in known:
                yield f"{_describe(found)} on {found.bus}"
            devices.remove(node)
    yield from (f"the removal of disk {each}" for each in sorted(missing))
    devices.extend([_with_free_order(devices, each).to_node() for each in wanted.values()])


def _with_free_order(devices: etree._Element, disk: DiskXml) -> DiskXml:
    """In the order of booting a place is taken once; or all of it is said for kinds of devices."""
    taken = {each.get("order") for each in devices.findall("*/boot")}
    if devices.find("../os/boot") is not None or str(disk.boot_order) in taken:
        return replace(disk, boot_order=None)
    return disk


def _describe(disk: DiskXml) -> str:
    return f"{disk.device} {disk.target} at {_place(disk.source) or 'nothing'}"


def _describe_other_source(found: DiskXml, disk: DiskXml, server: str) -> Lost:
    if not _place(found.source):  # an empty drive is nobody's
        return
    if _is_somebody_elses(found, server) and not _is_same_place(found.source, disk.source):
        yield _describe(found)


def _is_somebody_elses(disk: DiskXml, server: str) -> bool:
    """A volume of this server's is known by its name (B17)."""
    return not os.path.basename(_place(disk.source)).startswith(f"{server}_")


def _states_its_format(disk: DiskXml) -> bool:
    return bool(disk.driver_type or disk.type not in _WITH_FORMAT or not _place(disk.source))


def _put_layers(node: etree._Element, disk: DiskXml) -> None:
    """How it is cached, limited, ordered and addressed stays. Who opens it is said in its source,
    and not along with them, as Nova does."""
    remove(node, *_LAYERS, "auth")
    node.set("type", disk.type)
    driver = child(node, "driver")
    driver.set("name", disk.driver_name)
    if disk.driver_type:
        driver.set("type", disk.driver_type)
    if disk.serial:
        child(node, "serial").text = disk.serial
    node.extend([each for each in disk.to_node() if each.tag in _LAYERS])


def _put_error_policy(node: etree._Element, found: DiskXml, disk: DiskXml, is_ours: bool) -> Lost:
    """One that somebody chose stays, unless the disk is on a stream; and ours goes with that."""
    present = (found.error_policy, found.read_error_policy)
    wanted = (disk.error_policy, disk.read_error_policy)
    if present == wanted or not (any(wanted) or (is_ours and set(present) == {STOP})):
        return
    if any(present) and not is_ours:
        yield f"the error policy of {disk.target}"
    driver = child(node, "driver")
    for name, value in zip(("error_policy", "rerror_policy"), wanted, strict=True):
        driver.attrib.pop(name, "")
        if value:
            driver.set(name, value)


def put_interfaces(devices: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
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
        if len(present) == len(wanted) and all(map(contains, present, wanted)):
            continue
        changed += [tag]
        remove(node, tag)
        node.extend(wanted)
    if changed and ours == before:
        yield f"the {' and '.join(changed)} of interface {ours.mac}"


def put_controllers(devices: etree._Element, ours: DomainXml) -> None:
    there = {each.get("type") for each in devices.findall("controller")}
    devices.extend([each.to_node() for each in ours.controllers if each.type not in there])


def put_serial(devices: etree._Element, ours: DomainXml) -> Lost:
    """The first one is the console, and libvirt makes the element of that name from it."""
    (wanted,) = ours.serials
    first = devices.find("serial")
    if first is None or first.get("type") != wanted.type:
        if first is not None:
            devices.remove(first)
        yield "the change of the serial port"
        devices.insert(0, wanted.to_node())
    elif wanted.log:
        log = child(first, "log")
        log.set("file", wanted.log)
        log.set("append", wanted.log_append or "off")
    for console in devices.findall("console"):
        target = console.find("target")
        if target is None or target.get("type", "serial") == "serial":
            devices.remove(console)
