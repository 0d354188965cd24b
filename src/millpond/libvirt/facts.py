"""What a host is and has, by libvirt's word."""

from dataclasses import dataclass

from millpond.errors import HostProblem
from millpond.model.server import TARGET_PREFIXES
from millpond.model.sizes import MiB
from millpond.system.libvirtd import Libvirtd
from millpond.xml.host import CapabilitiesXml, DomainCapabilitiesXml


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    uuid: str
    hypervisor: str
    """As libvirt names it, in small letters: qemu, vz."""
    vcpus: int
    memory: int
    architectures: tuple[str, ...]
    """Of guests that it can run."""
    buses: tuple[str, ...]
    """That a disk of ours can be at."""


def facts_of(host: Libvirtd) -> HostFacts:
    with host.calling("looking at the host") as connection:
        hypervisor = connection.getType().lower()
        info = connection.getInfo()
        found = CapabilitiesXml.from_xml(connection.getCapabilities())
        domains = DomainCapabilitiesXml.from_xml(connection.getDomainCapabilities())
    if not found.uuid:
        what = f"libvirt at {host.uri} does not tell its host's UUID"
        raise HostProblem(what, "set host_uuid in its libvirtd.conf and restart it")
    buses = {each.text for each in domains.disk_buses}
    return HostFacts(
        uuid=found.uuid,
        hypervisor=hypervisor,
        vcpus=info[2],
        memory=info[1] * MiB,
        architectures=tuple(sorted({each.arch for each in found.guests})),
        buses=tuple(each for each in TARGET_PREFIXES if each in buses),
    )
