"""A server with the disks of another one: its content in files on this machine, and a new server
that is made from them."""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from millpond.disks.backend import DiskRequest, ImageFile
from millpond.errors import Busy, NameTaken, VolumeExists
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.model.callbacks import Progress, noop
from millpond.model.devices import Devices
from millpond.model.formats import DiskFormat
from millpond.model.names import ServerId, check_name
from millpond.model.server import Content, Disk, Network, Server
from millpond.scheduling.query import SchedulingRequest
from millpond.scheduling.scheduler import HostPlan, Plan
from millpond.servers import steps
from millpond.servers.config_drive import GuestConfiguration, read_drive
from millpond.servers.create import Creation, make, plan_variables
from millpond.servers.devices import check_devices
from millpond.servers.snapshot import Consistency, copy_disks

LOG = logging.getLogger(__name__)

_MADE_AGAIN = (Content.SWAP, Content.CONFIG, Content.CDROM, Content.NVRAM)
_BYTE_BY_BYTE = (Content.KERNEL, Content.RAMDISK, Content.CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContent:
    """All that there is of a server, on this machine."""

    server: Server
    files: Mapping[str, ImageFile]
    """What its disks hold, by their roles; but for those that are made again."""
    guest: GuestConfiguration | None = None
    """None: it has no config drive."""
    consistency: Consistency = Consistency.STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """A new server like the one that the content is of."""

    id: ServerId
    name: str
    networks: tuple[Network, ...]
    content: ServerContent

    @property
    def guest(self) -> GuestConfiguration | None:
        """What the guest is told: under another name it has another one in its network, too."""
        told = self.content.guest
        if told and self.name != self.content.server.name:
            return replace(told, hostname="")
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    name: str
    networks: tuple[Network, ...]
    quiesce: bool | None = None
    start: bool = True


def clone(
    deployment: Deployment,
    server: Server,
    request: CloneRequest,
    host: str = "",
    progress: Progress = noop,
) -> tuple[Server, Consistency]:
    """A new server with copies of another's disks. Killed, it leaves files that doctor removes,
    and a server whose creation is undone."""
    wanted = CopyRequest(
        id=ServerId(str(uuid.uuid4())),
        name=request.name,
        networks=request.networks,
        content=ServerContent(server=server, files={}),
    )
    check_copy(deployment, wanted, host)
    source, intake = deployment.host_of(server), Intake(deployment.own_images)
    copied = fetching(source, intake, server, quiesce=request.quiesce, progress=progress)
    with copied as content:
        made = create_copy(deployment, replace(wanted, content=content), host, start=request.start)
    LOG.info("cloned server %s as %s", server.name, made.name)
    return made, content.consistency


def copied_disks(server: Server) -> tuple[Disk, ...]:
    return tuple(disk for disk in server.disks if disk.content not in _MADE_AGAIN)


@contextmanager
def fetching(
    host: Host,
    intake: Intake,
    server: Server,
    *,
    quiesce: bool | None = None,
    compress: bool = False,
    progress: Progress = noop,
) -> Iterator[ServerContent]:
    """Its content for the block, all disks of one moment. What a process that dies leaves of it
    is removed with what it left of images."""
    config = [disk for disk in server.disks if disk.content is Content.CONFIG]
    with ExitStack() as stack:
        files = {}
        for disk in (*copied_disks(server), *config):
            _, path = stack.enter_context(intake.arriving())
            plain = disk.content in _BYTE_BY_BYTE
            format = DiskFormat.RAW if plain else DiskFormat.QCOW2
            files[disk.role] = ImageFile(path=path, format=format, compress=compress and not plain)
        current, consistency = copy_disks(host, server, files, quiesce, progress)
        if copied_disks(current) != copied_disks(server):  # since it was looked for
            raise Busy(f"server {server.name!r}")
        drives = [files.pop(disk.role).path.read_bytes() for disk in config]
        guest = read_drive(drives[0]) if drives else None
        yield ServerContent(server=current, files=files, guest=guest, consistency=consistency)


def networks_of_a_copy(server: Server) -> tuple[Network, ...]:
    """Its NICs in the same networks; nothing that only one server can have."""
    return tuple(Network(kind=each.kind, source=each.source) for each in server.networks)


def create_copy(
    deployment: Deployment,
    request: CopyRequest,
    host: str = "",
    *,
    start: bool = True,
) -> Server:
    """On the best host that has room, or on the named one if it is fit for it."""
    content = Creation(start=start, guest=request.guest, files=request.content.files)

    def create_on(name: str) -> Server:
        there = deployment.host(name)
        server = plan_copy(there, request)
        _refuse_present(there, server)
        return make(there, server, content, request.networks)

    if not deployment.schedules:
        return create_on(host)
    asked = _scheduling_request(request, host)
    return deployment.scheduler.place(asked, _planning(deployment, request), create_on)


def check_copy(deployment: Deployment, request: CopyRequest, host: str = "") -> None:
    """What makes it impossible is an error before a byte is copied."""
    if not deployment.schedules:
        there = deployment.host(host)
        server = plan_copy(there, request)
        steps.refuse_taken_name(there, server)
        _refuse_present(there, server)
        return
    name = check_name("a server", request.name)
    if deployment.records.has_name(name):
        raise NameTaken("a server", name)
    asked = _scheduling_request(request, host)
    decision = deployment.scheduler.decide(asked, _planning(deployment, request))
    if not decision.choices:
        raise decision.no_valid_host()


def _planning(deployment: Deployment, request: CopyRequest) -> Plan:
    def plan(name: str) -> HostPlan:
        server = plan_copy(deployment.hosts[name], request)
        return HostPlan(server=server, native=True, cached=True)

    return plan


def plan_copy(host: Host, request: CopyRequest) -> Server:
    """The whole record of the new server. Raises what makes it impossible; changes nothing, but
    that the host's pools are made where they are missing."""
    steps.refuse_foreign_servers(host)
    source = request.content.server
    virt_type = host.choose_virt_type()
    machine = host.full_machine_name(virt_type, source.hardware.machine)
    hardware = replace(source.hardware, virt_type=virt_type, machine=machine)
    steps.check_size(host, source.flavor, hardware)
    devices = _own_devices(source.devices)
    if devices != Devices():
        check_devices(host, devices, hardware)
    return replace(
        source,
        id=request.id,
        name=check_name("a server", request.name),
        host=host.name,
        hardware=hardware,
        networks=steps.plan_networks(host, request.networks),
        disks=(*_plan_disks(host, request), *plan_variables(host, request.id, hardware)),
        cdrom=replace(source.cdrom, image=None) if source.cdrom else None,
        operation=None,
        resized_from=None,
        leftovers=(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        should_run=False,
        devices=devices,
    )


def _plan_disks(host: Host, request: CopyRequest) -> Iterator[Disk]:
    """As the guest knows them: each at its target, on its bus, with its serial."""
    left_out = (Content.CDROM, Content.NVRAM, *(() if request.guest else (Content.CONFIG,)))
    for disk in request.content.server.disks:
        if disk.content in left_out:
            continue
        size = request.guest.drive_size if request.guest else 0
        asked = DiskRequest(
            server=request.id,
            role=disk.role,
            content=disk.content,
            size=size if disk.content is Content.CONFIG else disk.size,
            like=None if disk.content in _MADE_AGAIN else disk,
            target=disk.target,
        )
        yield replace(host.disks.plan(asked), bus=disk.bus)


def _own_devices(devices: Devices) -> Devices:
    """A display has a port that libvirt finds free: the other one's is taken."""
    vnc = devices.vnc and replace(devices.vnc, port=0)
    return replace(devices, vnc=vnc)


def _refuse_present(host: Host, server: Server) -> None:
    """Nothing of this id is there: it would be taken for a half-made one of ours, and removed if
    the server cannot be made."""
    if host.domains.description(server.id):
        raise NameTaken(f"a domain on host {host.name}", server.id)
    for disk in server.disks:
        if host.disks.exists(disk):
            raise VolumeExists(disk.pool, disk.volume)


def _scheduling_request(request: CopyRequest, host: str) -> SchedulingRequest:
    """Its disks come from no image: no host need know a format of those."""
    source = request.content.server
    return SchedulingRequest(
        server=request.name,
        image_format=None,
        boots_from_volume=True,
        vcpus=source.flavor.vcpus,
        memory=source.flavor.memory,
        root=0,
        blank=sum(disk.size for disk in copied_disks(source)),
        extra_specs=source.flavor.extra_specs,
        host=host,
    )
