"""The CD-ROM drives of running domains."""

from dataclasses import replace
from typing import Any

from millpond.errors import Conflict, LibvirtFailed
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.xml.domain import DiskXml, DomainXml


class Cdroms:
    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def change_medium(self, id: ServerId, drive: DiskXml, *, force: bool = False) -> None:
        """In the running domain and in its definition; the same medium once more is no error.
        Without ``force`` a guest that has locked the drive keeps what is in it."""
        forced = libvirtd.MODIFY_FORCE if force else 0
        try:
            with self._host.calling(f"changing the medium of {drive.target}", slow=True) as found:
                domain = found.lookupByUUIDString(id)
                for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
                    xml = _as_it_is_booted(domain, drive, flags).to_xml()
                    domain.updateDeviceFlags(xml, flags | forced)
        except LibvirtFailed as error:
            if error.code != libvirtd.OPERATION_FAILED:
                raise
            raise Conflict(
                f"the guest has locked its CD-ROM drive {drive.target}",
                "unmount the medium in the guest, or use --force",
            ) from error


def _as_it_is_booted(domain: Any, drive: DiskXml, flags: int) -> DiskXml:
    """In the order that the drive has there, which libvirt does not change."""
    inactive = libvirtd.XML_INACTIVE if flags == libvirtd.AFFECT_CONFIG else 0
    found = DomainXml.from_xml(domain.XMLDesc(inactive)).disk(drive.target)
    return replace(drive, boot_order=found.boot_order) if found else drive
