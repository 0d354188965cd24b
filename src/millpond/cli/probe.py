"""Does KVM run a Linux guest? Tried, because being able to open it proves little (trap 1)."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from millpond.doctor.kvm import Access, access
from millpond.errors import BadOption, LibvirtFailed, Unsupported
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.layer import FileSource, Layer
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Disk, Flavor, Hardware, ImageRef, Server, VirtType
from millpond.model.sizes import MiB
from millpond.servers.domain_xml import domain_xml
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.waiting import wait_until
from millpond.xml.domain import DomainXml

GUEST = Path("~/.cache/millpond/guests/linux.raw")
"""Where 'make guests' puts it."""

PATIENCE: Mapping[VirtType, float] = {VirtType.KVM: 20, VirtType.QEMU: 120}
"""Seconds. The guest speaks within two under a KVM that works, within six under emulation."""

_MARKER = b"MARKER:"
# Not /tmp, which a service may have to itself: libvirtd must see it, too.
_DIRECTORY = Path("/var/tmp")
_WALKABLE = 0o711


class ProbeResult(StrEnum):
    ABSENT = "absent"
    CLOSED = "closed"
    USABLE = "usable"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    verdict: ProbeResult
    reason: str = ""
    """What is wrong with a KVM that is not usable."""


def probe_kvm(host: Libvirtd, guest: Path, patience: Mapping[VirtType, float] = PATIENCE) -> Probe:
    """What KVM is good for. A guest that it does not run must run without it; or else the
    guest is to blame, and Unsupported is raised."""
    match access(host):
        case Access.ABSENT:
            return Probe(verdict=ProbeResult.ABSENT)
        case Access.CLOSED:
            return Probe(verdict=ProbeResult.CLOSED)
    if not os.path.isfile(guest):  # a Path raises what is wrong with too long a name
        advice = "'make guests' builds it; --guest names another one"
        raise BadOption("--guest", f"there is no guest {guest}", advice)
    reason = _failure_under_kvm(host, guest, patience[VirtType.KVM])
    if not reason:
        return Probe(verdict=ProbeResult.USABLE)
    if _speaks(host, guest, VirtType.QEMU, patience[VirtType.QEMU]):
        return Probe(verdict=ProbeResult.UNUSABLE, reason=reason)
    raise Unsupported(
        "probing KVM",
        f"the guest {guest} does not say {_MARKER.decode()!r} without KVM either",
        "'make guests' builds one that does",
    )


def _failure_under_kvm(host: Libvirtd, guest: Path, patience: float) -> str:
    """Nothing, if the guest runs."""
    try:
        spoke = _speaks(host, guest, VirtType.KVM, patience)
    except LibvirtFailed as error:
        return f"does not start: {error.detail}"
    return "" if spoke else f"stays silent for {patience:g} s"


def _speaks(host: Libvirtd, guest: Path, type_: VirtType, patience: float) -> bool:
    """Whether the guest says its marker on its console in time. Nothing is left of it."""
    with tempfile.TemporaryDirectory(prefix="millpond-probe-", dir=_DIRECTORY) as made:
        directory = Path(made)
        directory.chmod(_WALKABLE)
        disk, log = directory / "disk", directory / "console.log"
        shutil.copyfile(guest, disk)
        log.touch()  # ours, so that we may read what virtlogd appends to it
        with _running(host, _machine(type_, disk, log)):
            return wait_until(lambda: _MARKER in log.read_bytes(), patience)


def _machine(type_: VirtType, disk: Path, log: Path) -> DomainXml:
    """The machine that servers get, but for its disk, which lies in no pool."""
    id = str(uuid.uuid4())
    server = Server(
        id=ServerId(id),
        name=f"millpond-probe-{id}",
        host="",
        image=ImageRef(id=ImageId(""), name="", format=ImageFormat.RAW),
        flavor=Flavor(memory=256 * MiB),
        hardware=Hardware(virt_type=type_),
    )
    root = Disk(
        role="disk",
        backend=Backend.RAW,
        pool="",
        volume="",
        format=DiskFormat.RAW,
        size=disk.stat().st_size,
        target="vda",
    )
    chain = (Layer(source=FileSource(path=str(disk)), format=root.format),)
    made = domain_xml(replace(server, disks=(root,)), "", log, {root.role: chain})
    return replace(made, record=None)


@contextmanager
def _running(host: Libvirtd, xml: DomainXml) -> Iterator[None]:
    with host.calling("booting a guest to probe KVM", slow=True) as connection:
        connection.createXML(xml.to_xml(), libvirtd.DOMAIN_TRANSIENT_FLAGS)
        try:
            yield
        finally:
            if domain := libvirtd.find_domain(connection, xml.uuid):
                domain.destroy()
