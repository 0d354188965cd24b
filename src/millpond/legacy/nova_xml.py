"""What we read of a <domain> that Nova made (nova/virt/libvirt/config.py), and of its metadata."""

from dataclasses import dataclass

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
    disks: tuple[DiskXml, ...] = at("devices/disk", default=())
    interfaces: tuple[InterfaceXml, ...] = at("devices/interface", default=())
    host_devices: bool = at("devices/hostdev", default=False)
    shares: bool = at("devices/filesystem", default=False)
    tpm: bool = at("devices/tpm", default=False)
    sealed_memory: bool = at("launchSecurity", default=False)
