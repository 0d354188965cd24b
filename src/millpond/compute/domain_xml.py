"""A server's record to the domain that runs it."""

from pathlib import Path

from millpond.model.formats import DiskFormat
from millpond.model.server import Content, Disk, Firmware, Network, NetworkKind, Server, VirtType
from millpond.records import codec
from millpond.xml.domain import (
    BackingStoreXml,
    ControllerXml,
    DiskXml,
    DomainXml,
    InterfaceXml,
    RecordXml,
    SerialXml,
)

_END = BackingStoreXml()  # an empty one ends the chain: libvirt probes nothing


def domain_xml(server: Server, owner: str, console_log: Path | None) -> DomainXml:
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
        acpi=True,
        apic=True,
        cpu_mode="host-model" if kvm else None,
        clock="utc",
        on_poweroff="destroy",
        on_reboot="restart",
        on_crash="destroy",
        disks=tuple(disk_xml(server, each) for each in server.disks),
        interfaces=tuple(_interface(each, hardware.vif_model) for each in server.networks),
        controllers=_controllers(hardware.disk_bus),
        serials=(_serial(console_log),),
        rng="virtio",
        rng_backend="random",
        rng_source="/dev/urandom",
    )


def record_xml(server: Server, owner: str) -> RecordXml:
    """The copy of the record in the domain: for people, and to rebuild a lost state directory.
    The operation under way is the state directory's business."""
    return RecordXml(owner=owner, record=codec.encode(server).decode())


def disk_xml(server: Server, disk: Disk) -> DiskXml:
    """The config drive is a disk like the others, only read-only: guests find it by its label,
    and not every bus has CD-ROMs."""
    fixed = disk.content is Content.CONFIG
    return DiskXml(
        type="volume",
        driver_type=disk.format,
        discard=None if fixed else "unmap",
        pool=disk.pool,
        volume=disk.volume,
        backing=_chain(disk),
        target=disk.target,
        bus=server.hardware.disk_bus,
        read_only=fixed,
        boot_order=1 if disk.role == "disk" else None,
    )


def _chain(disk: Disk) -> BackingStoreXml:
    """The whole chain, stated. A base keeps its owner: it is root's, and stays so (trap 17)."""
    if not disk.overlay or disk.template is None:
        return _END
    return BackingStoreXml(
        type="volume",
        format=DiskFormat(disk.template.format),
        pool=disk.template.pool,
        volume=disk.template.volume,
        seclabel_model="dac",
        seclabel_relabel="no",
        below=_END,
    )


def _interface(network: Network, model: str) -> InterfaceXml:
    kind = network.kind
    return InterfaceXml(
        type=kind,
        mac=network.mac or None,
        network=network.source if kind is NetworkKind.NETWORK else None,
        bridge=network.source if kind is NetworkKind.BRIDGE else None,
        model=model,
    )


def _controllers(bus: str) -> tuple[ControllerXml, ...]:
    return (ControllerXml(type="scsi", model="virtio-scsi"),) if bus == "scsi" else ()


def _serial(log: Path | None) -> SerialXml:
    return SerialXml(log=str(log) if log else None, log_append="on" if log else None)
