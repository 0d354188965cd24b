"""Let a guest restart itself in the QEMU that it has."""

import threading
from typing import Any

from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd


def restart(host: Libvirtd, id: ServerId, patience: float) -> bool:
    """Asked by its agent, or else by the ACPI power button, after which libvirt resets the machine
    instead of ending it. Whether it has done so within ``patience`` seconds."""
    done = threading.Event()

    def note(_connection: Any, _domain: Any, _opaque: Any) -> None:
        done.set()

    with get_domain(host, id, "restarting the guest of", slow=True) as domain:
        connection = domain.connect()
        number = connection.domainEventRegisterAny(domain, libvirtd.REBOOTED, note, None)
        try:
            domain.reboot(0)
            return done.wait(patience)
        finally:
            connection.domainEventDeregisterAny(number)
