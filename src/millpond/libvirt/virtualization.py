"""KVM or emulation (TCG), by what QEMU's own user can really open; and machine types."""

import logging
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import LibvirtFailed, Tool
from millpond.model.server import VirtType
from millpond.model.sizes import MiB
from millpond.system.libvirtd import Libvirtd
from millpond.xml.host import CapabilitiesXml, DomainCapabilitiesXml

LOG = logging.getLogger(__name__)

KVM = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class QemuUser:
    uid: int
    gids: frozenset[int]

    def can_open(self, path: Path, wanted: int) -> bool:
        """By the file's own permissions; ``wanted`` is an octal digit such as 6 for read-write."""
        if self.uid == 0:
            return True
        status = path.stat()
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid in self.gids:
            shift = 3
        else:
            shift = 0
        return (status.st_mode >> shift) & wanted == wanted


def qemu_user(host: Libvirtd) -> QemuUser | None:
    """Whom libvirt runs guests as; None if it says nothing of it."""
    with host.calling("reading the host's capabilities") as connection:
        found = CapabilitiesXml.from_xml(connection.getCapabilities())
    label = next((each.label for each in found.security if each.model == "dac"), None)
    if not label:
        return None
    uid, gid = (int(part.lstrip("+")) for part in label.split(":"))
    return QemuUser(uid, frozenset({gid, *_groups_of(uid)}))


def choose(host: Libvirtd, *, local: bool) -> VirtType:
    """KVM if there is one and QEMU's user can open it (virt_type = auto); of a remote host, by
    libvirt's word."""
    if not local:
        return VirtType.KVM if host.offers(VirtType.KVM) else VirtType.QEMU
    if not KVM.exists():
        LOG.debug("emulation (TCG): there is no %s", KVM)
        return VirtType.QEMU
    user = qemu_user(host)
    if user and not user.can_open(KVM, 6):
        LOG.warning("emulation (TCG): QEMU's user cannot open %s ('%s')", KVM, Tool.DOCTOR)
        return VirtType.QEMU
    LOG.debug("KVM: QEMU's user can open %s", KVM)
    return VirtType.KVM


def full_machine_name(host: Libvirtd, virt_type: str, name: str) -> str:
    """With its version, of a machine type that libvirt knows by a shorter name, or chooses (an
    empty one). As it is where libvirt does not know it: the domain is refused, then."""
    found = find_machine(host, virt_type, name)
    return (found and found.machine) or name


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """That libvirt sets to one guest."""

    vcpus: int | None
    """None where libvirt does not know the machine type."""
    memory: int
    """All that the host has."""


def limits(host: Libvirtd, virt_type: str, machine: str) -> Limits:
    found = find_machine(host, virt_type, machine)
    with host.calling("asking for the host's memory") as connection:
        memory = int(connection.getInfo()[1]) * MiB
    return Limits(vcpus=found.vcpus if found else None, memory=memory)


def find_machine(host: Libvirtd, virt_type: str, name: str) -> DomainCapabilitiesXml | None:
    try:
        with host.calling("asking for a machine type") as connection:
            found = connection.getDomainCapabilities(None, None, name or None, virt_type, 0)
    except LibvirtFailed:
        return None
    return DomainCapabilitiesXml.from_xml(found)


def _groups_of(uid: int) -> set[int]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    return set(os.getgrouplist(user.pw_name, user.pw_gid))
