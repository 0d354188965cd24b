"""The NICs of domains, which come and go while a guest runs."""

from typing import Any

from millpond.errors import Conflict
from millpond.libvirt.domain_disks import DETACH_PATIENCE
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.waiting import wait_until
from millpond.xml.domain import DomainXml, InterfaceXml


class DomainNics:
    """A NIC is known by its MAC."""

    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def attach(self, id: ServerId, nic: InterfaceXml) -> None:
        """To the running domain and to its definition; one that is there already is no error."""
        doing = f"attaching NIC {nic.mac} to domain {id}"
        with self._host.calling(doing, slow=True) as connection:
            domain = connection.lookupByUUIDString(id)
            for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
                if _find(domain, nic.mac, flags) is None:
                    domain.attachDeviceFlags(nic.to_xml(), flags)

    def detach(self, id: ServerId, mac: str) -> None:
        """Waits until the guest has let it go, and takes it out of the definition then. One that
        is gone already is no error."""
        for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
            with self._host.calling(f"detaching NIC {mac} from domain {id}", slow=True) as calls:
                domain = calls.lookupByUUIDString(id)
                if (found := _find(domain, mac, flags)) is None:
                    continue
                domain.detachDeviceFlags(found.to_xml(), flags)
            if not wait_until(lambda: not self.has(id, mac), DETACH_PATIENCE):
                raise Conflict(
                    f"the guest has not released NIC {mac} within {DETACH_PATIENCE} s",
                    "it may still do so: run the same command again, or stop the server first",
                )

    def has(self, id: ServerId, mac: str) -> bool:
        """Whether the running domain has it."""
        with self._host.calling(f"looking at the NICs of domain {id}") as connection:
            domain = connection.lookupByUUIDString(id)
            return bool(domain.isActive() and _find(domain, mac, libvirtd.AFFECT_LIVE))


def _find(domain: Any, mac: str | None, flags: int) -> InterfaceXml | None:
    inactive = libvirtd.XML_INACTIVE if flags == libvirtd.AFFECT_CONFIG else 0
    found = DomainXml.from_xml(domain.XMLDesc(inactive)).interfaces
    return next((each for each in found if (each.mac or "").lower() == mac), None)
