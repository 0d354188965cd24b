"""What libvirt would refuse when a server starts, found out before anything is made."""

from collections.abc import Sequence

from millpond.errors import ExceedsHost
from millpond.hosts.host import Host
from millpond.libvirt import virtualization
from millpond.model.server import Flavor, Hardware, Network, NetworkKind
from millpond.model.sizes import format_size


def check_size(host: Host, flavor: Flavor, hardware: Hardware) -> None:
    """Whether the machine type has so many vCPUs, and the host so much memory."""
    machine = hardware.machine
    most = virtualization.most_vcpus(host.libvirtd, hardware.virt_type, machine)
    if most and flavor.vcpus > most:
        reason = f"{flavor.vcpus} are too many: machine type {machine} has {most} at the most"
        raise ExceedsHost("--vcpus", reason, f"write --vcpus {most} or less")
    memory = virtualization.memory_of(host.libvirtd)
    if flavor.memory > memory:
        reason = (
            f"{format_size(flavor.memory)} are too much: host {host.name!r} has "
            f"{format_size(memory)}"
        )
        raise ExceedsHost("--memory", reason, "write less")


def check_networks(host: Host, networks: Sequence[Network]) -> None:
    """Whether they are there and active."""
    for each in networks:
        match each.kind:
            case NetworkKind.NETWORK:
                host.networks.get_active(each.source)
            case NetworkKind.BRIDGE:
                host.networks.check_bridge(each.source)
