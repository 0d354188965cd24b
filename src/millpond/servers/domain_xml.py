"""A server's record to the domain that runs it."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from millpond.model.layer import Chain, FileSource
from millpond.model.server import Content, Disk, Firmware, Network, NetworkKind, Server, VirtType
from millpond.records import codec
from millpond.xml.domain import (
    ControllerXml,
    DiskXml,
    DomainXml,
    InterfaceXml,
    RecordXml,
    SerialXml,
    layers_xml,
)

_NO_READ_ONLY_DISKS = ("ide", "sata")
"""Buses on which QEMU has no read-only disks but CD-ROMs."""

Chains = Mapping[str, Chain]
"""The layers of a server's disks by their role."""


def domain_xml(server: Server, owner: str, console_log: Path | None, chains: Chains) -> DomainXml:
    hardware = server.hardware
    kvm = hardware.virt_type is VirtType.KVM
    return DomainXml(
        type=hardware.virt_type,
        name=server.name,
        uuid=server.id,
        record=record_xml(server, owner),
        memory_unit="b",
        memory=server.flavor.memory,
        vcpus=server.flavor.vcpus,
        firmware="efi" if hardware.firmware is Firmware.UEFI else None,
        machine=hardware.machine or None,
        kernel=_path_of(Content.KERNEL, chains),
        initrd=_path_of(Content.RAMDISK, chains),
        command_line=server.boot.command_line if server.boot else None,
        acpi=True,
        apic=True,
        cpu_mode="host-model" if kvm else None,
        clock="utc",
        on_poweroff="destroy",
        on_reboot="restart",
        on_crash="destroy",
        disks=tuple(
            disk_xml(server, each, chains[each.role]) for each in server.disks if each.is_attached
        ),
        interfaces=tuple(_interface(each, hardware.vif_model) for each in server.networks),
        controllers=_controllers({hardware.disk_bus, *(each.bus for each in server.disks)}),
        serials=(_serial(console_log),),
        rng="virtio",
        rng_backend="random",
        rng_source="/dev/urandom",
    )


def record_xml(server: Server, owner: str) -> RecordXml:
    """The copy of the record in the domain: for people, and to rebuild a lost state directory.
    The operation under way is the state directory's business, unless the domain is not as the
    record says as long as it lasts. Whether it should run, libvirt's autostart says."""
    copied = replace(server, should_run=False)
    return RecordXml(owner=owner, record=codec.encode_server(copied).decode())


def disk_xml(server: Server, disk: Disk, chain: Chain) -> DiskXml:
    """The config drive is a disk like the others, only read-only: guests find it by its label,
    and not every bus has CD-ROMs."""
    fixed = disk.content is Content.CONFIG
    bus = disk.bus or server.hardware.disk_bus
    layers = layers_xml(chain)
    return DiskXml(
        type=layers.type,
        device="cdrom" if fixed and bus in _NO_READ_ONLY_DISKS else "disk",
        driver_type=layers.format,
        discard=None if fixed else "unmap",
        source=layers.source,
        backing=layers.backing,
        target=disk.target,
        bus=bus,
        read_only=fixed,
        serial=disk.serial,
        boot_order=1 if disk.role == "disk" else None,
    )


def _path_of(content: Content, chains: Chains) -> str | None:
    if content not in chains:
        return None
    (file,) = chains[content]
    assert isinstance(file.source, FileSource)  # a volume of a directory pool (B12)
    return file.source.path


def _interface(network: Network, model: str) -> InterfaceXml:
    kind = network.kind
    return InterfaceXml(
        type=kind,
        mac=network.mac or None,
        network=network.source if kind is NetworkKind.NETWORK else None,
        bridge=network.source if kind is NetworkKind.BRIDGE else None,
        model=model,
    )


def _controllers(buses: Collection[str]) -> tuple[ControllerXml, ...]:
    return (ControllerXml(type="scsi", model="virtio-scsi"),) if "scsi" in buses else ()


def _serial(log: Path | None) -> SerialXml:
    return SerialXml(log=str(log) if log else None, log_append="on" if log else None)
