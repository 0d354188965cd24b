"""KVM: is it there, can QEMU's user open it, and do servers use it?"""

import grp
from collections.abc import Iterator
from enum import StrEnum

from millpond.config import VirtTypeOption
from millpond.doctor.finding import Finding, ok, problem
from millpond.errors import Tool
from millpond.hosts.host import Host
from millpond.libvirt.virtualization import KVM, QemuUser, qemu_user
from millpond.model.server import VirtType
from millpond.system.libvirtd import Libvirtd


class Access(StrEnum):
    ABSENT = "absent"
    CLOSED = "closed"
    """There, but not for QEMU's user."""
    OPEN = "open"


def look(host: Host) -> Iterator[Finding]:
    wanted = host.settings.libvirt.virt_type
    if not host.seems_local:
        yield _by_word(host.libvirtd, wanted)
        return
    found = access(host.libvirtd)
    if found is Access.CLOSED:
        yield describe_closed(host.libvirtd)
    elif found is Access.ABSENT and wanted is VirtTypeOption.KVM:
        yield problem(
            f"virt_type = kvm, but there is no {KVM}: servers cannot start",
            "load KVM (modprobe kvm_intel, or kvm_amd), or set virt_type = auto",
        )
    else:
        yield ok(_usual(found, wanted))


def _by_word(host: Libvirtd, wanted: VirtTypeOption) -> Finding:
    """Of a host whose devices are not here."""
    offered = host.offers(VirtType.KVM)
    if wanted is VirtTypeOption.KVM and not offered:
        return problem(
            "virt_type = kvm, but libvirt offers no KVM there: servers cannot start",
            "load KVM on that host, or set virt_type = auto",
        )
    return ok(f"libvirt {'offers' if offered else 'has no'} KVM there; virt_type = {wanted}")


def access(host: Libvirtd) -> Access:
    if not KVM.exists():
        return Access.ABSENT
    user = qemu_user(host)
    return Access.OPEN if user is None or user.can_open(KVM, 6) else Access.CLOSED


def describe_closed(host: Libvirtd) -> Finding:
    """libvirt examines QEMU once and keeps the answer, unless KVM is closed to it (trap 1)."""
    user = qemu_user(host)
    join = "" if user and _in_kvm_group(user) else ", and add QEMU's user to the group kvm"
    return problem(
        f"QEMU's user cannot open {KVM}: each server takes 48 s to start, instead of 0.5 s",
        f"chgrp kvm {KVM} && chmod 0660 {KVM}{join}",
    )


def _usual(found: Access, wanted: VirtTypeOption) -> str:
    if found is Access.ABSENT:
        return f"there is no {KVM}: servers run under emulation (TCG), which is slow"
    if wanted is VirtTypeOption.QEMU:
        return f"virt_type = qemu: servers run under emulation (TCG), though there is {KVM}"
    return f"virt_type = {wanted}: servers run under KVM ('{Tool.PROBE_KVM}' tries it)"


def _in_kvm_group(user: QemuUser) -> bool:
    try:
        return grp.getgrnam("kvm").gr_gid in user.gids
    except KeyError:
        return False
