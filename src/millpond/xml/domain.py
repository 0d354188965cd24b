"""The <domain> element that we write, and what we read of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.model.formats import DiskFormat
from millpond.model.layer import (
    Chain,
    FileSource,
    IscsiSource,
    Layer,
    NbdSource,
    RbdSource,
    Source,
    VolumeSource,
)
from millpond.xml.element import Element, at

NAMESPACE = "urn:millpond:server:1"
"""Marks our own part of a domain's <metadata>."""


@dataclass(frozen=True, kw_only=True)
class MonitorXml(Element, tag="host"):
    """Where a network disk is served: by a host, or through a socket of this one."""

    name: str | None = at("@name", default=None)
    port: int | None = at("@port", default=None)
    transport: str | None = at("@transport", default=None)
    socket: str | None = at("@socket", default=None)


@dataclass(frozen=True, kw_only=True)
class SliceXml(Element, tag="slice"):
    """The part of a longer source that is meant."""

    type: str = at("@type", default="storage")
    offset: int = at("@offset", default=0)
    size: int = at("@size")


@dataclass(frozen=True, kw_only=True)
class SourceXml(Element, tag="source"):
    """Where a layer's bytes are: by pool and volume, by path, or in the network."""

    pool: str | None = at("@pool", default=None)
    volume: str | None = at("@volume", default=None)
    file: str | None = at("@file", default=None)
    device: str | None = at("@dev", default=None)
    protocol: str | None = at("@protocol", default=None)
    name: str | None = at("@name", default=None)
    monitors: tuple[MonitorXml, ...] = at("host", default=())
    snapshot: str | None = at("snapshot/@name", default=None)
    slices: tuple[SliceXml, ...] = at("slices/slice", default=())
    initiator: str | None = at("initiator/iqn/@name", default=None)
    user: str | None = at("auth/@username", default=None)
    secret_type: str | None = at("auth/secret/@type", default=None)
    secret: str | None = at("auth/secret/@uuid", default=None)
    seclabel_model: str | None = at("seclabel/@model", default=None)
    seclabel_relabel: str | None = at("seclabel/@relabel", default=None)


@dataclass(frozen=True, kw_only=True)
class BackingStoreXml(Element, tag="backingStore"):
    """One layer below the disk; an empty one ends the chain, so that libvirt probes nothing."""

    type: str | None = at("@type", default=None)
    format: str | None = at("format/@type", default=None)
    source: SourceXml | None = at("source", default=None)
    below: BackingStoreXml | None = at("backingStore", default=None)


@dataclass(frozen=True, kw_only=True)
class DiskXml(Element, tag="disk"):
    type: str = at("@type", default="volume")
    device: str = at("@device", default="disk")
    driver_name: str = at("driver/@name", default="qemu")
    driver_type: str | None = at("driver/@type", default=None)
    discard: str | None = at("driver/@discard", default=None)
    error_policy: str | None = at("driver/@error_policy", default=None)
    """What becomes of the guest when a write fails; a write may have to read what lies below."""
    read_error_policy: str | None = at("driver/@rerror_policy", default=None)
    source: SourceXml | None = at("source", default=None)
    backing: BackingStoreXml | None = at("backingStore", default=None)
    target: str = at("target/@dev")
    bus: str | None = at("target/@bus", default=None)
    job: str | None = at("mirror/@job", default=None)
    """Of a block job that will put another layer on top."""
    job_ready: str | None = at("mirror/@ready", default=None)
    read_only: bool = at("readonly", default=False)
    serial: str | None = at("serial", default=None)
    boot_order: int | None = at("boot/@order", default=None)


@dataclass(frozen=True, kw_only=True)
class InterfaceXml(Element, tag="interface"):
    type: str = at("@type")
    mac: str | None = at("mac/@address", default=None)
    network: str | None = at("source/@network", default=None)
    bridge: str | None = at("source/@bridge", default=None)
    virtual_port: str | None = at("virtualport/@type", default=None)
    model: str | None = at("model/@type", default=None)


@dataclass(frozen=True, kw_only=True)
class ControllerXml(Element, tag="controller"):
    type: str = at("@type")
    model: str | None = at("@model", default=None)


@dataclass(frozen=True, kw_only=True)
class SerialXml(Element, tag="serial"):
    """The first serial port: libvirt makes the console of it."""

    type: str = at("@type", default="pty")
    log: str | None = at("log/@file", default=None)
    log_append: str | None = at("log/@append", default=None)


@dataclass(frozen=True, kw_only=True)
class GraphicsXml(Element, tag="graphics"):
    type: str = at("@type", default="vnc")
    port: int | None = at("@port", default=None)
    autoport: str | None = at("@autoport", default=None)
    listen: str | None = at("@listen", default=None)


@dataclass(frozen=True, kw_only=True)
class VideoXml(Element, tag="video"):
    model: str | None = at("model/@type", default=None)


@dataclass(frozen=True, kw_only=True)
class TpmXml(Element, tag="tpm"):
    model: str | None = at("@model", default=None)
    backend: str | None = at("backend/@type", default=None)
    version: str | None = at("backend/@version", default=None)


@dataclass(frozen=True, kw_only=True)
class ChannelXml(Element, tag="channel"):
    type: str = at("@type", default="unix")
    target_type: str | None = at("target/@type", default=None)
    name: str | None = at("target/@name", default=None)
    state: str | None = at("target/@state", default=None)
    """Of a running domain: connected, if the guest has opened it."""


@dataclass(frozen=True, kw_only=True)
class FirmwareFeatureXml(Element, tag="feature"):
    enabled: str = at("@enabled", default="yes")
    name: str = at("@name")


@dataclass(frozen=True, kw_only=True)
class RecordXml(Element, tag="server", namespace=NAMESPACE):
    """Our copy of the server's record in the domain's metadata."""

    owner: str = at("@owner")
    written: str | None = at("@written", default=None)
    """Of the definition, what we last wrote besides what the record speaks of."""
    record: str = at("")


@dataclass(frozen=True, kw_only=True)
class BareRecordXml(Element, tag="server"):
    """The same as virDomainSetMetadata takes it: libvirt puts it into the namespace itself."""

    owner: str = at("@owner")
    written: str | None = at("@written", default=None)
    record: str = at("")


_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
COMMAND_LINE = f"{{{_QEMU}}}commandline"
PUBLISHED = "published"
"""The id of the NIC that we write there, whose ports are published."""


@dataclass(frozen=True, kw_only=True)
class ArgumentXml(Element, tag="arg", namespace=_QEMU):
    """A word of QEMU's command line that libvirt hands on."""

    value: str = at("@value")


@dataclass(frozen=True, kw_only=True)
class DomainXml(Element, tag="domain"):
    type: str = at("@type")
    id: int | None = at("@id", default=None)
    """Only while it runs."""
    name: str = at("name")
    uuid: str = at("uuid")
    description: str | None = at("description", default=None)
    record: RecordXml | None = at(f"metadata/{{{NAMESPACE}}}server", default=None)
    memory_unit: str | None = at("memory/@unit", default=None)
    memory: int = at("memory")
    """The most that a running one can have, as are the vCPUs."""
    current_memory_unit: str | None = at("currentMemory/@unit", default=None)
    current_memory: int | None = at("currentMemory", default=None)
    vcpus: int = at("vcpu")
    current_vcpus: int | None = at("vcpu/@current", default=None)
    firmware: str | None = at("os/@firmware", default=None)
    firmware_features: tuple[FirmwareFeatureXml, ...] = at("os/firmware/feature", default=())
    nvram: str | None = at("os/nvram", default=None)
    machine: str | None = at("os/type/@machine", default=None)
    os_type: str = at("os/type", default="hvm")
    kernel: str | None = at("os/kernel", default=None)
    initrd: str | None = at("os/initrd", default=None)
    command_line: str | None = at("os/cmdline", default=None)
    acpi: bool = at("features/acpi", default=False)
    apic: bool = at("features/apic", default=False)
    cpu_mode: str | None = at("cpu/@mode", default=None)
    cpu_model: str | None = at("cpu/model", default=None)
    clock: str | None = at("clock/@offset", default=None)
    on_poweroff: str | None = at("on_poweroff", default=None)
    on_reboot: str | None = at("on_reboot", default=None)
    on_crash: str | None = at("on_crash", default=None)
    disks: tuple[DiskXml, ...] = at("devices/disk", default=())
    interfaces: tuple[InterfaceXml, ...] = at("devices/interface", default=())
    controllers: tuple[ControllerXml, ...] = at("devices/controller", default=())
    serials: tuple[SerialXml, ...] = at("devices/serial", default=())
    channels: tuple[ChannelXml, ...] = at("devices/channel", default=())
    graphics: tuple[GraphicsXml, ...] = at("devices/graphics", default=())
    videos: tuple[VideoXml, ...] = at("devices/video", default=())
    tpms: tuple[TpmXml, ...] = at("devices/tpm", default=())
    memballoon: str | None = at("devices/memballoon/@model", default=None)
    rng: str | None = at("devices/rng/@model", default=None)
    rng_backend: str | None = at("devices/rng/backend/@model", default=None)
    rng_source: str | None = at("devices/rng/backend", default=None)
    arguments: tuple[ArgumentXml, ...] = at(f"{COMMAND_LINE}/{{{_QEMU}}}arg", default=())

    def disk(self, target: str) -> DiskXml | None:
        return next((disk for disk in self.disks if disk.target == target), None)


@dataclass(frozen=True, kw_only=True)
class SnapshotDiskXml(Element, tag="disk"):
    name: str = at("@name")
    snapshot: str = at("@snapshot")
    """``external``, or ``no`` for a disk that is left alone."""
    type: str | None = at("@type", default=None)
    driver_type: str | None = at("driver/@type", default=None)
    file: str | None = at("source/@file", default=None)


@dataclass(frozen=True, kw_only=True)
class DomainSnapshotXml(Element, tag="domainsnapshot"):
    disks: tuple[SnapshotDiskXml, ...] = at("disks/disk", default=())


@dataclass(frozen=True, kw_only=True)
class LayerXml(Element, tag="backingStore"):
    file: str | None = at("source/@file", default=None)
    device: str | None = at("source/@dev", default=None)
    pool: str | None = at("source/@pool", default=None)
    volume: str | None = at("source/@volume", default=None)
    name: str | None = at("source/@name", default=None)
    """In the network."""
    socket: str | None = at("source/host/@socket", default=None)
    """Where it is served on this host."""
    below: LayerXml | None = at("backingStore", default=None)


@dataclass(frozen=True, kw_only=True)
class MirrorXml(LayerXml, tag="mirror"):
    """What a block job copies to."""


@dataclass(frozen=True, kw_only=True)
class TopXml(LayerXml, tag="disk"):
    mirror: MirrorXml | None = at("mirror", default=None)


@dataclass(frozen=True, kw_only=True)
class ChainsXml(Element, tag="domain"):
    name: str = at("name")
    kernel: str | None = at("os/kernel", default=None)
    initrd: str | None = at("os/initrd", default=None)
    disks: tuple[TopXml, ...] = at("devices/disk", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersXml:
    """What a ``<disk>`` says of its layers, for whoever writes the rest of it."""

    type: str
    format: DiskFormat
    source: SourceXml
    backing: BackingStoreXml
    error_policy: str | None = None


STOP = "stop"
"""The guest is paused, and sees no error."""


def layers_xml(chain: Chain) -> LayersXml:
    top, *below = chain
    return LayersXml(
        type=_type(top.source),
        format=top.format,
        source=_source(top.source),
        backing=_backing(below),
        error_policy=STOP if any(isinstance(each.source, NbdSource) for each in chain) else None,
    )


def _backing(layers: Sequence[Layer]) -> BackingStoreXml:
    """The rest of the chain, stated to its end."""
    if not layers:
        return BackingStoreXml()  # empty: libvirt probes nothing
    layer, *below = layers
    return BackingStoreXml(
        type=_type(layer.source),
        format=layer.format,
        source=_source(layer.source) if below else _base_source(layer),
        below=_backing(below),
    )


def _base_source(base: Layer) -> SourceXml:
    """A base keeps its owner: it is root's, and stays so (trap 17). What lies between it and the
    top is a server's own, which is not to keep the mark (trap 29)."""
    slices = () if base.length is None else (SliceXml(size=base.length),)
    source = replace(_source(base.source), slices=slices)
    if source.protocol:
        return source
    return replace(source, seclabel_model="dac", seclabel_relabel="no")


def _type(source: Source) -> str:
    match source:
        case VolumeSource():
            return "volume"
        case FileSource(device=device):
            return "block" if device else "file"
        case RbdSource() | IscsiSource() | NbdSource():
            return "network"


def _source(source: Source) -> SourceXml:
    match source:
        case VolumeSource(pool=pool, volume=volume):
            return SourceXml(pool=pool, volume=volume)
        case FileSource(path=path, device=device):
            return SourceXml(device=path) if device else SourceXml(file=path)
        case IscsiSource(host=host, port=port, location=location, initiator=initiator):
            return SourceXml(
                protocol="iscsi",
                name=location,
                monitors=(MonitorXml(name=host, port=port),),
                initiator=initiator or None,
            )
        case NbdSource(socket=socket, export=export):
            return SourceXml(
                protocol="nbd",
                name=export or None,
                monitors=(MonitorXml(transport="unix", socket=str(socket)),),
            )
        case RbdSource(access=access, location=location, snapshot=snapshot):
            return SourceXml(
                protocol="rbd",
                name=location,
                snapshot=snapshot or None,
                monitors=tuple(MonitorXml(name=name, port=port) for name, port in access.monitors),
                user=access.user or None,
                secret_type="ceph" if access.secret else None,
                secret=access.secret or None,
            )
