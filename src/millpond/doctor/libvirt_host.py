"""libvirt and QEMU: do they answer, and are they new enough?"""

from collections.abc import Iterator
from contextlib import suppress

from millpond.doctor.finding import Finding, ok
from millpond.errors import TooOld
from millpond.hosts.host import Host


def reachable(host: Host) -> Iterator[Finding]:
    with suppress(TooOld):  # it answers; the next check tells that
        host.libvirtd.versions()
    yield ok(f"libvirt answers at {host.libvirtd.uri}")


def versions(host: Host) -> Iterator[Finding]:
    libvirt, qemu = host.libvirtd.versions()
    yield ok(f"libvirt {libvirt}, QEMU {qemu}")
