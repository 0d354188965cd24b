"""A server's record to the domain that runs it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from millpond.legacy.image_files import PLOOP_IMAGE
from millpond.model.devices import CPU_MODES, Devices, Vnc
from millpond.model.formats import Backend
from millpond.model.layer import Chain, FileSource
from millpond.model.server import (
    RESCUE,
    CdromDrive,
    Content,
    Disk,
    Firmware,
    Network,
    NetworkKind,
    Server,
    VirtType,
)
from millpond.records import codec
from millpond.xml.domain import (
    PUBLISHED,
    ArgumentXml,
    ChannelXml,
    ControllerXml,
    DiskXml,
    DomainXml,
    FirmwareFeatureXml,
    GraphicsXml,
    InterfaceXml,
    RecordXml,
    SerialXml,
    SourceXml,
    TpmXml,
    VideoXml,
    layers_xml,
)
from millpond.xml.keeping import written_defaults

_NO_READ_ONLY_DISKS = ("ide", "sata")
"""Buses on which QEMU has no read-only disks but CD-ROMs."""

CDROM = "cdrom"
"""The role of the medium in the CD-ROM drive."""
_BOOT_ORDER = {RESCUE: 1, "disk": 1, CDROM: 2}
"""The firmware goes on to the CD-ROM as long as the root disk has nothing to boot."""

_DEVICES = {"virtio": "virtio-net-pci"}
"""QEMU's names of NICs, where they are not libvirt's."""
_AGENT = ChannelXml(target_type="virtio", name="org.qemu.guest_agent.0")
_SECURE_BOOT = tuple(FirmwareFeatureXml(name=each) for each in ("enrolled-keys", "secure-boot"))
"""With the keys by which loaders of distributions are signed: else nothing would be verified."""

Chains = Mapping[str, Chain]
"""The layers of a server's disks by their role."""


def domain_xml(server: Server, owner: str, console_log: Path | None, chains: Chains) -> DomainXml:
    hardware, devices, flavor = server.hardware, server.devices, server.flavor
    mode, model = _cpu(devices, hardware.virt_type)
    uefi = hardware.firmware is Firmware.UEFI
    domain = DomainXml(
        type=hardware.virt_type,
        name=server.name,
        uuid=server.id,
        description=server.description or None,
        memory_unit="b",
        memory=flavor.most_memory,
        current_memory_unit="b" if flavor.most_memory > flavor.memory else None,
        current_memory=flavor.memory if flavor.most_memory > flavor.memory else None,
        vcpus=flavor.most_vcpus,
        current_vcpus=flavor.vcpus if flavor.most_vcpus > flavor.vcpus else None,
        firmware="efi" if uefi else None,
        firmware_features=_SECURE_BOOT if devices.secure_boot else (),
        nvram=_path_of(Content.NVRAM, chains),
        machine=hardware.machine or None,
        kernel=_path_of(Content.KERNEL, chains),
        initrd=_path_of(Content.RAMDISK, chains),
        command_line=server.boot.command_line if server.boot else None,
        acpi=True,
        apic=True,
        cpu_mode=mode,
        cpu_model=model,
        clock="utc",
        on_poweroff="destroy",
        on_reboot="restart",
        on_crash="destroy",
        disks=tuple(_disks(server, chains)),
        interfaces=tuple(
            interface_xml(each, hardware.vif_model) for each in server.networks if not each.ports
        ),
        controllers=_controllers(_buses(server)),
        serials=(_serial(console_log),),
        channels=(_AGENT,),
        graphics=(_graphics(devices.vnc),) if devices.vnc else (),
        videos=(VideoXml(model=devices.video),) if devices.video else (),
        tpms=(_tpm(uefi=uefi),) if devices.tpm else (),
        rng="virtio",
        rng_backend="random",
        rng_source="/dev/urandom",
        arguments=tuple(
            ArgumentXml(value=word)
            for each in server.networks
            if each.ports
            for word in _published(each, hardware.vif_model)
        ),
    )
    recorded = ("cpu_mode",) if devices.cpu else ()
    noted = replace(record_xml(server, owner), written=written_defaults(domain, recorded))
    return replace(domain, record=noted)


def _cpu(devices: Devices, virt_type: VirtType) -> tuple[str | None, str | None]:
    """Mode and model."""
    if devices.cpu:
        return (devices.cpu, None) if devices.cpu in CPU_MODES else ("custom", devices.cpu)
    return ("host-model" if virt_type is VirtType.KVM else None), None


def _graphics(vnc: Vnc) -> GraphicsXml:
    auto = "no" if vnc.port else "yes"
    return GraphicsXml(port=vnc.port or None, autoport=auto, listen=vnc.address)


def _tpm(*, uefi: bool) -> TpmXml:
    """The newer interface, where the firmware knows it."""
    return TpmXml(model="tpm-crb" if uefi else "tpm-tis", backend="emulator", version="2.0")


def former_xml(server: Server, owner: str) -> DomainXml:
    """What a domain was defined as by a record from before, but for the layers of its disks."""
    disks = tuple(
        DiskXml(target=each.target, source=_legacy_source(each))
        for each in server.disks
        if each.target
    )
    return replace(domain_xml(replace(server, disks=()), owner, None, {}), disks=disks)


def _legacy_source(disk: Disk) -> SourceXml | None:
    """Of one that may have come into a pool since then."""
    inner = f"/{PLOOP_IMAGE}" if disk.backend is Backend.PLOOP else ""
    return SourceXml(file=f"{disk.path}{inner}") if disk.path else None


def record_xml(server: Server, owner: str) -> RecordXml:
    """The copy of the record in the domain: for people, and to rebuild a lost state directory.
    The operation under way is the state directory's business, unless the domain is not as the
    record says as long as it lasts. Whether it should run, libvirt's autostart says."""
    copied = replace(server, should_run=False)
    return RecordXml(owner=owner, record=codec.encode_server(copied).decode())


def _disks(server: Server, chains: Chains) -> Iterator[DiskXml]:
    for each in server.disks:
        if each.is_attached:
            yield disk_xml(server, each, chains[each.role])
    if server.cdrom and not server.cdrom.image:
        yield empty_drive_xml(server.cdrom)


def _buses(server: Server) -> set[str]:
    drive = {server.cdrom.bus} if server.cdrom else set()
    return {server.hardware.disk_bus, *(each.bus for each in server.disks), *drive}


def disk_xml(server: Server, disk: Disk, chain: Chain) -> DiskXml:
    """The config drive is a disk like the others, only read-only: guests find it by its label,
    and not every bus has CD-ROMs."""
    fixed = disk.content in (Content.CONFIG, Content.CDROM)
    bus = disk.bus or server.hardware.disk_bus
    layers = layers_xml(chain)
    return DiskXml(
        type=layers.type,
        device="cdrom" if _is_cdrom(disk, bus) else "disk",
        driver_type=layers.format,
        discard=None if fixed else "unmap",
        error_policy=layers.error_policy,
        read_error_policy=layers.error_policy,
        source=layers.source,
        backing=layers.backing,
        target=disk.target,
        bus=bus,
        read_only=fixed,
        serial=disk.serial,
        boot_order=None if _gives_way(server, disk) else _BOOT_ORDER.get(disk.role),
    )


def _gives_way(server: Server, disk: Disk) -> bool:
    return disk.role == "disk" and server.is_rescued


def _is_cdrom(disk: Disk, bus: str) -> bool:
    if disk.content is Content.CONFIG:
        return bus in _NO_READ_ONLY_DISKS
    return disk.content is Content.CDROM


def empty_drive_xml(drive: CdromDrive) -> DiskXml:
    """But for the medium the same as with one: of a running domain nothing else can be changed."""
    return DiskXml(
        type="file",
        device="cdrom",
        target=drive.target,
        bus=drive.bus,
        read_only=True,
        serial=CDROM,
        boot_order=_BOOT_ORDER[CDROM],
    )


def _path_of(content: Content, chains: Chains) -> str | None:
    if content not in chains:
        return None
    (file,) = chains[content]
    assert isinstance(file.source, FileSource)  # a volume of a directory pool (B12)
    return file.source.path


def interface_xml(network: Network, model: str) -> InterfaceXml:
    kind = network.kind
    return InterfaceXml(
        type=kind,
        mac=network.mac or None,
        network=network.source if kind is NetworkKind.NETWORK else None,
        bridge=network.source if kind is NetworkKind.BRIDGE else None,
        model=model,
    )


def _published(network: Network, model: str) -> Iterator[str]:
    """A NIC whose ports are published, which libvirt cannot describe (decision 26). At a place on
    the bus that libvirt, which fills it from below, gives to nothing else."""
    forwards = (
        f"hostfwd={each.protocol}:{each.address}:{each.port}-:{each.guest}"
        for each in network.ports
    )
    device = _DEVICES.get(model, model)
    yield from ("-netdev", ",".join((f"user,id={PUBLISHED}", *forwards)))
    yield from ("-device", f"{device},netdev={PUBLISHED},mac={network.mac},addr=0x1e")


def _controllers(buses: Collection[str]) -> tuple[ControllerXml, ...]:
    return (ControllerXml(type="scsi", model="virtio-scsi"),) if "scsi" in buses else ()


def _serial(log: Path | None) -> SerialXml:
    return SerialXml(log=str(log) if log else None, log_append="on" if log else None)
