"""The CD-ROM drives of running domains."""

from millpond.errors import Conflict, LibvirtFailed
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.xml.domain import DiskXml


class Cdroms:
    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def change_medium(self, id: ServerId, drive: DiskXml, *, force: bool = False) -> None:
        """In the running domain and in its definition; the same medium once more is no error.
        Without ``force`` a guest that has locked the drive keeps what is in it."""
        flags = libvirtd.AFFECT_LIVE | libvirtd.AFFECT_CONFIG
        try:
            with self._host.calling(f"changing the medium of {drive.target}", slow=True) as found:
                domain = found.lookupByUUIDString(id)
                domain.updateDeviceFlags(drive.to_xml(), flags | libvirtd.MODIFY_FORCE * force)
        except LibvirtFailed as error:
            if error.code != libvirtd.OPERATION_FAILED:
                raise
            raise Conflict(
                f"the guest has locked its CD-ROM drive {drive.target}",
                "unmount the medium in the guest, or use --force",
            ) from error
