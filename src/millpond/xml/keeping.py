"""A definition as it is to be: what the server's record speaks of as we write it, and everything
else as it stands in the present one.

``before`` is what the record said when the present one was written, with the disks, but not their
layers: what was ours then and is not any more goes, and what differs from it somebody has changed.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from lxml import etree

from millpond.model.sizes import GiB, KiB, MiB, format_size
from millpond.xml.domain import (
    COMMAND_LINE,
    NAMESPACE,
    PUBLISHED,
    DomainXml,
    FirmwareFeatureXml,
)
from millpond.xml.element import parse, put
from millpond.xml.kept_devices import (
    Lost,
    put_channels,
    put_controllers,
    put_device,
    put_disks,
    put_interfaces,
    put_serial,
)
from millpond.xml.tree import child, remove

_UNITS = {"b": 1, "bytes": 1, "KiB": KiB, "k": KiB, "MiB": MiB, "M": MiB, "GiB": GiB, "G": GiB}
"""Of memory. libvirt itself always writes KiB; others, which people may write, are taken for 0."""

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
_STOPPING = "stopping"
"""Targets of the disks that we gave their error policy, because they are on a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    xml: str
    lost: tuple[str, ...]


def written_defaults(domain: DomainXml, recorded: Collection[str] = ()) -> str:
    """What we wrote that no record speaks of: who finds it changed knows that it was not us.
    Of these the record does speak: ``recorded``."""
    values = [(name, getattr(domain, name)) for name in _DEFAULTS if name not in recorded]
    values.append((_STOPPING, ",".join(each.target for each in domain.disks if each.error_policy)))
    return " ".join(f"{name}={value}" for name, value in values if value)


def keep(present: str, ours: DomainXml, before: DomainXml) -> Kept:
    """``present`` is the inactive XML with its secrets, which would be lost otherwise."""
    root = parse(present)
    there = DomainXml.from_node(root)
    root.set("type", ours.type)
    devices = child(root, "devices")
    lost = (
        *_put_name(root, there, ours, before),
        *_put_memory(root, ours, before),
        *_put_vcpus(root, ours, before),
        *_put_boot(root, ours, before),
        *_put_machine(root, ours, before),
        *put_disks(devices, ours, before, _defaults_of(there).get(_STOPPING, "").split(",")),
        *put_interfaces(devices, ours, before),
        *put_serial(devices, ours),
        *_put_cpu(root, ours, before),
        *_put_description(root, ours, before),
        *put_device(devices, "the VNC display", ours.graphics, before.graphics),
        *put_device(devices, "the video model", ours.videos, before.videos),
        *put_device(devices, "the TPM", ours.tpms, before.tpms),
    )
    _put_arguments(root, ours)
    put_channels(devices, ours)
    _put_defaults(root, there, ours)
    _put_metadata(root, ours)
    put_controllers(devices, ours)
    etree.indent(root)
    return Kept(xml=etree.tostring(root, encoding="unicode"), lost=lost)


def _put_name(root: etree._Element, there: DomainXml, ours: DomainXml, before: DomainXml) -> Lost:
    """One that Nova made still has Nova's name for it when we first write it."""
    if there.record and there.record.written and there.name not in (ours.name, before.name):
        yield f"the name {there.name!r}"
    child(root, "name").text = ours.name


def _put_arguments(root: etree._Element, ours: DomainXml) -> None:
    """The NIC whose ports are published, in two pairs of words; all others stay."""
    line = child(root, COMMAND_LINE)
    words = line.findall("{*}arg")
    for flag, value in pairwise(words):
        if f"={PUBLISHED}," in f"{value.get('value')},":
            line.remove(flag)
            line.remove(value)
    line.extend([each.to_node() for each in ours.arguments])
    if len(line) == 0:
        root.remove(line)


def _put_metadata(root: etree._Element, ours: DomainXml) -> None:
    metadata = child(root, "metadata")
    remove(metadata, f"{{{NAMESPACE}}}server")
    if ours.record:
        metadata.append(ours.record.to_node())


def _put_memory(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """What a balloon leaves the guest stays, if it is less, and the record does not say it."""
    memory, current = child(root, "memory"), root.find("currentMemory")
    present = int(memory.text or 0) * _UNITS.get(memory.get("unit") or "KiB", 0) // KiB
    wanted, was = _in_kib(ours.memory), _in_kib(before.memory)
    if present != wanted:
        if present != was:
            yield f"{format_size(present * KiB)} of memory"
        memory.text = str(wanted)
        memory.set("unit", "KiB")
        left = int(current.text or 0) if current is not None else 0
        if current is not None and (left == present or left > wanted):
            root.remove(current)
    yield from _put_current_memory(root, ours, before)


def _put_current_memory(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """libvirt writes KiB, and none that is less for a domain that has all of it."""
    wanted, was = (_in_kib(each.current_memory or each.memory) for each in (ours, before))
    if not (ours.current_memory or before.current_memory):
        return
    current = child(root, "currentMemory")
    present = int(current.text or was)
    if present not in (wanted, was):
        yield f"{format_size(present * KiB)} of memory at present"
    current.text = str(wanted)
    current.set("unit", "KiB")


def _in_kib(size: int) -> int:
    """We write bytes, and libvirt rounds up."""
    return -(-size // KiB)


def _put_vcpus(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """How many of them a guest begins with stays, if the record does not say it."""
    vcpu, topology = child(root, "vcpu"), root.find("cpu/topology")
    said = bool(ours.current_vcpus or before.current_vcpus)
    present = (vcpu.text, vcpu.get("current") if said else None)
    if present != _vcpus(ours):
        if present != _vcpus(before):
            yield f"{vcpu.get('current') or vcpu.text} vCPUs"
        vcpu.text, current = _vcpus(ours)
        vcpu.attrib.pop("current", "")
        if current:
            vcpu.set("current", current)
        remove(root, "vcpus")
    if topology is not None and _vcpus_of(topology) != ours.vcpus:
        yield "the topology of the CPU"
        remove(child(root, "cpu"), "topology")


def _vcpus(domain: DomainXml) -> tuple[str, str | None]:
    return str(domain.vcpus), str(domain.current_vcpus) if domain.current_vcpus else None


def _vcpus_of(topology: etree._Element) -> int:
    product = 1
    for each in ("sockets", "dies", "clusters", "cores", "threads"):
        product *= int(topology.get(each) or 1)
    return product


def _put_boot(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """UEFI may be libvirt's choice of it, or one that is named."""
    boot = child(root, "os")
    loader = boot.find("loader")
    named = loader is not None and loader.get("type") == "pflash"
    if bool(ours.firmware) != (named or boot.get("firmware") == "efi"):
        if ours.firmware == before.firmware:
            yield "the firmware"
        remove(boot, "loader", "nvram", "firmware")
        boot.attrib.pop("firmware", "")
        if ours.firmware:
            boot.set("firmware", ours.firmware)
    yield from _put_secure_boot(boot, ours, before)
    for tag, wanted, was in (
        ("nvram", ours.nvram, before.nvram),
        ("kernel", ours.kernel, before.kernel),
        ("initrd", ours.initrd, before.initrd),
        ("cmdline", ours.command_line, before.command_line),
    ):
        if wanted:
            line = child(boot, tag)
            if line.text not in (None, was) and not _is_same_file(line.text, wanted):
                yield f"{tag} {line.text}"
            line.text = wanted
        elif was:
            remove(boot, tag)


def _put_secure_boot(boot: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    features = {FirmwareFeatureXml.from_node(each) for each in boot.findall("firmware/feature")}
    changed = ours.firmware_features != before.firmware_features
    if not changed and set(ours.firmware_features) <= features:
        return
    if not changed:
        yield "secure boot that is off"
    remove(boot, "loader", "nvram" if changed else "loader", "firmware")
    boot.set("firmware", "efi")
    if ours.firmware_features:
        child(boot, "firmware").extend([each.to_node() for each in ours.firmware_features])


def _is_same_file(present: str | None, wanted: str) -> bool:
    """In whatever directory: the pool may have moved."""
    return os.path.basename(present or "") == os.path.basename(wanted)


def _put_machine(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """Another machine has other buses, on which devices have other addresses."""
    kind = child(child(root, "os"), "type")
    present = kind.get("machine")
    if not ours.machine or present == ours.machine:
        return
    if present != before.machine:
        yield f"the machine type {present}"
    kind.set("machine", ours.machine)
    devices = child(root, "devices")
    remove(devices, "controller")
    for address in list(devices.iter("address")):
        device = address.getparent()
        if device is not None and device.tag != "source":  # of the host's own, passed through
            device.remove(address)


def _put_defaults(root: etree._Element, there: DomainXml, ours: DomainXml) -> None:
    """Those that are as we last wrote them follow what we write now. A version that did not note
    what it wrote has written the same."""
    now = _defaults_of(ours)
    was = _defaults_of(there) or now
    for name in (now.keys() | was.keys()) & set(_DEFAULTS):
        present, wanted = getattr(there, name), getattr(ours, name)
        if wanted != present and was.get(name) == (str(present) if present else None):
            put(root, DomainXml, name, wanted)


def _defaults_of(domain: DomainXml) -> dict[str, str]:
    noted = (domain.record and domain.record.written) or ""
    return dict(each.split("=", 1) for each in noted.split())


def _put_cpu(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    """If the record speaks of it; topology and NUMA stay in any case."""
    wanted, was = _recorded_cpu(ours), _recorded_cpu(before)
    if wanted == (None, None) == was:
        return
    cpu = child(root, "cpu")
    if (cpu.get("mode"), cpu.findtext("model")) == wanted:
        return
    if wanted == was:
        yield "the CPU model"
    mode, model = (ours.cpu_mode, ours.cpu_model)
    for each in list(cpu.attrib):
        del cpu.attrib[each]
    remove(cpu, "model", "vendor", "feature", "maxphysaddr")
    if mode:
        cpu.set("mode", mode)
    if model:
        child(cpu, "model").text = model
    if not (cpu.attrib or len(cpu)):
        root.remove(cpu)


def _recorded_cpu(domain: DomainXml) -> tuple[str | None, str | None]:
    spoken_of = "cpu_mode" not in _defaults_of(domain)
    return (domain.cpu_mode, domain.cpu_model) if spoken_of else (None, None)


def _put_description(root: etree._Element, ours: DomainXml, before: DomainXml) -> Lost:
    present, wanted = root.findtext("description"), ours.description
    if wanted:
        if wanted == before.description != present:
            yield "the description"
        child(root, "description").text = wanted
    elif before.description:
        remove(root, "description")
