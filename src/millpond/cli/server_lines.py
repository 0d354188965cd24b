"""Parts of a server as people read them, each in a line."""

from millpond.model.server import DirectBoot, Disk, Flavor, Network, NetworkKind, Server
from millpond.model.sizes import format_size
from millpond.servers.across_hosts import Addresses


def kernel_line(boot: DirectBoot) -> str:
    ramdisk = f" and {boot.ramdisk.name}" if boot.ramdisk else ""
    return f"{boot.kernel.name}{ramdisk}: {boot.command_line}"


def size_line(flavor: Flavor) -> str:
    vcpus, memory = f"{flavor.vcpus} vCPU", f"{format_size(flavor.memory)} memory"
    if flavor.most_vcpus > flavor.vcpus:
        vcpus = f"{flavor.vcpus} of {flavor.most_vcpus} vCPU"
    if flavor.most_memory > flavor.memory:
        memory = f"{format_size(flavor.memory)} of {format_size(flavor.most_memory)} memory"
    return f"{vcpus}, {memory}"


def nic_lines(server: Server, known: Addresses) -> list[tuple[str, str]]:
    found = [
        ", ".join((_network(each), each.mac, *ways_in(each, known))) for each in server.networks
    ]
    return [(f"NIC {number}", line) for number, line in enumerate(found)] or [("NICs", "none")]


def ways_in(nic: Network, known: Addresses) -> tuple[str, ...]:
    """Its addresses, or the ports of the host that lead to it."""
    fixed = (nic.address.partition("/")[0],) if nic.address else ()
    return known.get(nic.mac) or fixed or tuple(map(str, nic.ports))


def _network(nic: Network) -> str:
    return f"bridge:{nic.source}" if nic.kind is NetworkKind.BRIDGE else nic.source or nic.kind


def disk_line(disk: Disk) -> str:
    where = disk.target or ("detached" if disk.content.is_seen_by_the_guest else "")
    size = f"{format_size(disk.size)} " if disk.size else ""
    line = f"{size}{disk.format} by {disk.backend}: {disk.location}"
    line = f"{where}, {line}" if where else line
    if disk.template is None:
        return line
    how = "backed by" if disk.overlay else "made from"
    return f"{line}, {how} {disk.template.pool}/{disk.template.volume} ({disk.template.format})"
