"""vCPUs and memory of a domain that runs, up to what it was started with at the most."""

from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.model.sizes import KiB
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.waiting import wait_until


def get_vcpus(host: Libvirtd, id: ServerId) -> int:
    with get_domain(host, id, "asking for the vCPUs of") as domain:
        return int(domain.vcpusFlags(libvirtd.AFFECT_LIVE))


def set_vcpus(host: Libvirtd, id: ServerId, number: int) -> None:
    with get_domain(host, id, "changing the vCPUs of", slow=True) as domain:
        domain.setVcpusFlags(number, libvirtd.AFFECT_LIVE)


def set_memory(host: Libvirtd, id: ServerId, size: int, patience: float) -> bool:
    """By the balloon; False if the guest, which may have no driver for it, does not follow within
    ``patience`` seconds."""
    wanted = -(-size // KiB)
    with get_domain(host, id, "changing the memory of", slow=True) as domain:
        domain.setMemoryFlags(wanted, libvirtd.AFFECT_LIVE)
        return wait_until(lambda: domain.memoryStats().get("actual") == wanted, patience)
