"""What we read of a host's <capabilities> and <domainCapabilities>."""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class SecurityModelXml(Element, tag="secmodel"):
    model: str = at("model")
    label: str | None = at("baselabel[@type='kvm']", default=None)


@dataclass(frozen=True, kw_only=True)
class GuestXml(Element, tag="guest"):
    arch: str = at("arch/@name")


@dataclass(frozen=True, kw_only=True)
class CapabilitiesXml(Element, tag="capabilities"):
    arch: str = at("host/cpu/arch")
    uuid: str | None = at("host/uuid", default=None)
    security: tuple[SecurityModelXml, ...] = at("host/secmodel", default=())
    guests: tuple[GuestXml, ...] = at("guest", default=())


@dataclass(frozen=True, kw_only=True)
class ValueXml(Element, tag="value"):
    text: str = at(".")


@dataclass(frozen=True, kw_only=True)
class CpuModelXml(Element, tag="model"):
    name: str = at(".")


@dataclass(frozen=True, kw_only=True)
class CpuModeXml(Element, tag="mode"):
    name: str = at("@name")
    supported: str = at("@supported")
    models: tuple[CpuModelXml, ...] = at("model", default=())


@dataclass(frozen=True, kw_only=True)
class DomainCapabilitiesXml(Element, tag="domainCapabilities"):
    machine: str | None = at("machine", default=None)
    vcpus: int | None = at("vcpu/@max", default=None)
    secure: tuple[ValueXml, ...] = at("os/loader/enum[@name='secure']/value", default=())
    cpu_modes: tuple[CpuModeXml, ...] = at("cpu/mode", default=())
    videos: tuple[ValueXml, ...] = at("devices/video/enum[@name='modelType']/value", default=())
    tpm_backends: tuple[ValueXml, ...] = at(
        "devices/tpm/enum[@name='backendModel']/value", default=()
    )
    disk_buses: tuple[ValueXml, ...] = at("devices/disk/enum[@name='bus']/value", default=())
