"""libvirt and QEMU: do they answer, and are they new enough?"""

from collections.abc import Iterator
from contextlib import suppress

from millpond.doctor.finding import Finding, ok
from millpond.engine import Engine
from millpond.errors import TooOld


def reachable(engine: Engine) -> Iterator[Finding]:
    with suppress(TooOld):  # it answers; the next check tells that
        engine.libvirtd.versions()
    yield ok(f"libvirt answers at {engine.libvirtd.uri}")


def versions(engine: Engine) -> Iterator[Finding]:
    libvirt, qemu = engine.libvirtd.versions()
    yield ok(f"libvirt {libvirt}, QEMU {qemu}")
