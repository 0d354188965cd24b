"""A domain that Nova made, and the server that it would be here.

When it is next started, its disks and interfaces are written into the domain from the server's
record. So those that no record of ours can hold speak against taking it.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from millpond.legacy.disk import LegacyDisk, LegacyServer
from millpond.legacy.image_files import PLOOP_IMAGE
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.names import UUID, ImageId
from millpond.model.server import (
    TARGET_PREFIXES,
    Content,
    DirectBoot,
    Disk,
    Firmware,
    Flavor,
    Hardware,
    ImageRef,
    Network,
    NetworkKind,
    Server,
    VirtType,
)
from millpond.model.sizes import KiB
from millpond.xml.domain import DiskXml, InterfaceXml
from millpond.xml.element import Element, at

_NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"


@dataclass(frozen=True, kw_only=True)
class NovaInstanceXml(Element, tag="instance", namespace=_NOVA):
    name: str | None = at(f"{{{_NOVA}}}name", default=None)
    created: str | None = at(f"{{{_NOVA}}}creationTime", default=None)
    flavor: str | None = at(f"{{{_NOVA}}}flavor/@name", default=None)
    image_format: str | None = at(f"{{{_NOVA}}}image/{{{_NOVA}}}diskFormat", default=None)
    root_type: str | None = at(f"{{{_NOVA}}}root/@type", default=None)
    root_id: str | None = at(f"{{{_NOVA}}}root/@uuid", default=None)


@dataclass(frozen=True, kw_only=True)
class NovaDomainXml(Element, tag="domain"):
    type: str = at("@type")
    name: str = at("name")
    uuid: str = at("uuid")
    instance: NovaInstanceXml | None = at(f"metadata/{{{_NOVA}}}instance", default=None)
    memory: int = at("memory")
    """In KiB, as libvirt always shows it."""
    vcpus: int = at("vcpu")
    firmware: str | None = at("os/@firmware", default=None)
    loader: str | None = at("os/loader/@type", default=None)
    machine: str | None = at("os/type/@machine", default=None)
    kernel: str | None = at("os/kernel", default=None)
    initrd: str | None = at("os/initrd", default=None)
    command_line: str | None = at("os/cmdline", default=None)
    disks: tuple[DiskXml, ...] = at("devices/disk", default=())
    interfaces: tuple[InterfaceXml, ...] = at("devices/interface", default=())


def objections(found: LegacyServer, domain: NovaDomainXml | None) -> Iterator[str]:
    """All that stands in the way of taking it, in words."""
    yield from found.obstacles
    if domain is None:
        yield "there is no domain of this UUID here"
        return
    yield from _objections_to_machine(found, domain)
    yield from _objections_to_interfaces(domain)
    yield from _objections_to_disks(found, domain)


def server_of(found: LegacyServer, domain: NovaDomainXml, host: str) -> Server:
    """The record of one that nothing speaks against."""
    disks = tuple(_disks_of(found, domain))
    nova = domain.instance or NovaInstanceXml()
    root = next((each for each in disks if each.role == "disk"), disks[0])
    return Server(
        id=found.id,
        name=domain.name,
        host=host,
        image=_image(nova, root.format),
        flavor=_flavor(domain, nova, disks),
        hardware=_hardware(domain, root.bus),
        networks=tuple(_network(each) for each in domain.interfaces),
        disks=disks,
        boot=_boot(domain),
        created=_creation_time(nova),
    )


def _objections_to_machine(found: LegacyServer, domain: NovaDomainXml) -> Iterator[str]:
    if domain.type not in tuple(VirtType):
        yield f"it is a domain of type {domain.type!r}, not of QEMU's"
    for path in filter(None, (domain.kernel, domain.initrd)):
        if _at(found, path) is None:
            yield f"it boots from {path}, which is not in Nova's legacy layout"


def _objections_to_interfaces(domain: NovaDomainXml) -> Iterator[str]:
    for each in domain.interfaces:
        if each.type not in tuple(NetworkKind) or each.virtual_port:
            kind = " ".join(filter(None, (each.type, each.virtual_port)))
            yield f"its interface {each.mac} is of the kind {kind!r}, which is not known here"


def _objections_to_disks(found: LegacyServer, domain: NovaDomainXml) -> Iterator[str]:
    attached = []
    for disk in _occupied(domain):
        legacy = _legacy(found, disk)
        if legacy is None:
            yield f"its disk {disk.target}, {_place(disk)}, is not in Nova's legacy layout"
            continue
        attached.append(legacy)
        stated = disk.driver_type or DiskFormat.RAW  # as libvirt takes it
        if legacy.format and stated != legacy.format:
            yield f"{legacy.role}: it is {legacy.format} on record, but {stated} in the domain"
        if disk.bus not in TARGET_PREFIXES:
            yield f"{legacy.role}: it is on the bus {disk.bus!r}, which is not known here"
    booted = [_at(found, path) for path in (domain.kernel, domain.initrd) if path]
    for each in found.disks:
        if each not in attached and each not in booted:
            yield f"{each.role}: it is not attached to the domain"


def _disks_of(found: LegacyServer, domain: NovaDomainXml) -> Iterator[Disk]:
    for disk in _occupied(domain):
        legacy = _legacy(found, disk)
        assert legacy
        yield legacy.record(target=disk.target, bus=disk.bus or "")
    for path in filter(None, (domain.kernel, domain.initrd)):
        found_file = _at(found, path)
        assert found_file
        yield found_file.record(target="", bus="")


def _boot(domain: NovaDomainXml) -> DirectBoot | None:
    """Nova's domain does not tell from which images."""
    if not domain.kernel:
        return None
    ramdisk = ImageRef(id=ImageId(""), name="unknown", format=ImageFormat.ARI)
    return DirectBoot(
        kernel=ImageRef(id=ImageId(""), name="unknown", format=ImageFormat.AKI),
        ramdisk=ramdisk if domain.initrd else None,
        command_line=domain.command_line or "",
    )


def _occupied(domain: NovaDomainXml) -> list[DiskXml]:
    """Without drives that have no disc in them."""
    return [disk for disk in domain.disks if _place(disk)]


def _legacy(found: LegacyServer, disk: DiskXml) -> LegacyDisk | None:
    return _at(found, _place(disk))


def _at(found: LegacyServer, path: str) -> LegacyDisk | None:
    """Where both names lead: the instances may lie behind a link, a volume has several."""
    place = os.path.realpath(path)
    fitting = (each for each in found.disks if place in map(os.path.realpath, _places(each)))
    return next(fitting, None)


def _places(disk: LegacyDisk) -> tuple[str, ...]:
    if disk.layout is Backend.PLOOP:
        return disk.path, os.path.join(disk.path, PLOOP_IMAGE)
    return (disk.path,)


def _place(disk: DiskXml) -> str:
    source = disk.source
    return (source.file or source.device or source.name or source.volume or "") if source else ""


def _image(nova: NovaInstanceXml, instead: DiskFormat) -> ImageRef:
    """Of an image that Nova does not tell of, the format is that of the disk made from it."""
    known = nova.root_type == "image" and re.fullmatch(UUID, nova.root_id or "")
    id = (nova.root_id or "") if known else ""
    stated = nova.image_format if nova.image_format in tuple(ImageFormat) else instead
    return ImageRef(id=ImageId(id), name=id or "unknown", format=ImageFormat(stated or instead))


def _flavor(domain: NovaDomainXml, nova: NovaInstanceXml, disks: tuple[Disk, ...]) -> Flavor:
    def size(content: Content) -> int:
        return sum(disk.size for disk in disks if disk.content is content)

    return Flavor(
        name=nova.flavor or "",
        vcpus=domain.vcpus,
        memory=domain.memory * KiB,
        disk=size(Content.IMAGE),
        ephemeral=size(Content.EPHEMERAL),
        swap=size(Content.SWAP),
    )


def _hardware(domain: NovaDomainXml, bus: str) -> Hardware:
    models = [each.model for each in domain.interfaces if each.model]
    uefi = domain.firmware == "efi" or domain.loader == "pflash"
    return Hardware(
        virt_type=VirtType(domain.type),
        firmware=Firmware.UEFI if uefi else Firmware.BIOS,
        machine=domain.machine or "",
        disk_bus=bus,
        vif_model=models[0] if models else "virtio",
    )


def _network(interface: InterfaceXml) -> Network:
    kind = NetworkKind(interface.type)
    sources = {NetworkKind.NETWORK: interface.network, NetworkKind.BRIDGE: interface.bridge}
    return Network(kind=kind, source=sources.get(kind) or "", mac=interface.mac or "")


def _creation_time(nova: NovaInstanceXml) -> str:
    """Nova writes it without its zone, which is UTC."""
    try:
        made = datetime.fromisoformat(nova.created or "").replace(tzinfo=UTC)
    except ValueError:
        made = datetime.now(UTC)
    return made.isoformat(timespec="seconds")
