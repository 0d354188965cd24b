"""Create a server: claim, template, disks, domain, start; a failure leaves nothing behind."""

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from millpond.disks.backend import DiskRequest, ImageFile
from millpond.disks.disks import root_size
from millpond.errors import BadOption, NameTaken
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.boot_images import BootImages, find_boot_images
from millpond.model.callbacks import Progress, noop
from millpond.model.devices import Devices
from millpond.model.image import Image
from millpond.model.image_properties import (
    command_line_of,
    disk_bus_of,
    firmware_of,
    machine_of,
    vif_model_of,
)
from millpond.model.names import ImageId, ServerId, check_name
from millpond.model.server import (
    TARGET_PREFIXES,
    CdromDrive,
    Content,
    DirectBoot,
    Disk,
    Firmware,
    Flavor,
    Hardware,
    ImageRef,
    Network,
    Server,
)
from millpond.model.template import Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.scheduling.query import SchedulingRequest
from millpond.servers import steps
from millpond.servers.config_drive import GuestConfiguration
from millpond.servers.devices import check_devices
from millpond.servers.domain_xml import CDROM
from millpond.servers.steps import refuse_foreign_servers

LOG = logging.getLogger(__name__)

_MOST_DISKS = 26
"""Letters for targets; no bus that we offer has more than libvirt numbers by letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    name: str
    image: Image
    flavor: Flavor
    networks: tuple[Network, ...] = ()
    firmware: Firmware | None = None
    """None: as the image's properties say, else BIOS."""
    guest: GuestConfiguration | None = None
    """None: it has no config drive."""
    devices: Devices = field(default_factory=Devices)
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, Image] = field(default_factory=dict)
    """What other disks are made from, by their roles."""
    installs: bool = False
    """The image is a medium for the CD-ROM drive, and the root disk begins blank."""


def scheduling_request(request: ServerRequest, host: str = "") -> SchedulingRequest:
    """What it asks of a host, or of the named one."""
    flavor = request.flavor
    return SchedulingRequest(
        server=request.name,
        image_format=request.image.format,
        vcpus=flavor.vcpus,
        memory=flavor.memory,
        root=0 if request.installs else _size_of_images(request),
        blank=flavor.ephemeral + flavor.swap + (flavor.disk if request.installs else 0),
        image_properties=request.image.properties,
        extra_specs=flavor.extra_specs,
        host=host,
    )


def _size_of_images(request: ServerRequest) -> int:
    others = (root_size(each, 0) for each in request.disks.values())
    return root_size(request.image, request.flavor.disk) + sum(others)


def plan_server(host: Host, request: ServerRequest) -> Server:
    """The whole record of the new server. Raises what makes it impossible; changes nothing, but
    that the host's pools are made where they are missing."""
    refuse_foreign_servers(host)
    name = check_name("a server", request.name)
    id = ServerId(str(uuid.uuid4()))
    image = request.image
    hardware = _hardware(host, request)
    steps.check_size(host, request.flavor, hardware)
    if request.devices != Devices():
        check_devices(host, request.devices, hardware)
    networks = steps.plan_networks(host, request.networks)
    boot = find_boot_images(
        image.format, image.properties, lambda each: host.images.describe(ImageId(each))
    )
    disks = _plan_disks(host, hardware, _disk_requests(id, request, boot))
    return Server(
        id=id,
        name=name,
        host=host.name,
        image=ImageRef.of(image),
        flavor=request.flavor,
        hardware=hardware,
        networks=networks,
        disks=(*disks, *plan_variables(host, id, hardware)),
        boot=_direct_boot(boot, image, disks[0]) if boot else None,
        cdrom=_drive(disks[-1], image) if request.installs else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=request.devices,
        description=request.description,
        labels=request.labels,
    )


def _disk_requests(
    server: ServerId, request: ServerRequest, boot: BootImages | None
) -> Iterator[DiskRequest]:
    """All disks that a server is made with, in the order in which its guest finds them."""
    disk, flavor = partial(DiskRequest, server=server), request.flavor
    if request.installs:
        yield disk(role="disk", content=Content.BLANK, size=flavor.disk)
    else:
        yield disk(role="disk", size=flavor.disk, image=request.image)
    for role, image in request.disks.items():
        yield disk(role=role, content=Content.DATA, image=image)
    if flavor.ephemeral and "disk.eph0" not in request.disks:
        yield disk(role="disk.eph0", content=Content.EPHEMERAL, size=flavor.ephemeral)
    if flavor.swap:
        yield disk(role="disk.swap", content=Content.SWAP, size=flavor.swap)
    if guest := request.guest:
        yield disk(role="disk.config", content=Content.CONFIG, size=guest.drive_size)
    for content, image in boot.files.items() if boot else ():
        yield disk(role=content.value, content=content, image=image)
    if request.installs:
        yield disk(role=CDROM, content=Content.CDROM, image=request.image)


def _plan_disks(
    host: Host, hardware: Hardware, requests: Iterator[DiskRequest]
) -> tuple[Disk, ...]:
    disks: list[Disk] = []
    for each in requests:
        own = cdrom_bus(hardware.machine) if each.content is Content.CDROM else ""
        taken, bus = {disk.target for disk in disks}, own or hardware.disk_bus
        target = free_target(bus, taken) if each.content.is_seen_by_the_guest else ""
        planned = replace(host.disks.plan(replace(each, target=target)), bus=own)
        is_data = each.image and each.content is Content.DATA
        image = ImageRef.of(each.image) if each.image and is_data else None
        disks.append(replace(planned, image=image))
    return tuple(disks)


def plan_variables(host: Host, server: ServerId, hardware: Hardware) -> tuple[Disk, ...]:
    """Of UEFI: a volume as any other, so that they follow their server (decision 32)."""
    if hardware.firmware is not Firmware.UEFI:
        return ()
    asked = DiskRequest(server=server, role=Content.NVRAM.value, content=Content.NVRAM)
    return (host.disks.plan(asked),)


def cdrom_bus(machine: str) -> str:
    """One on which the machine has CD-ROM drives that its firmware boots from."""
    if "q35" in machine:
        return "sata"
    return "ide" if machine.startswith("pc") or not machine else "scsi"


def _drive(medium: Disk, image: Image) -> CdromDrive:
    return CdromDrive(target=medium.target, bus=medium.bus, image=ImageRef.of(image))


def free_target(bus: str, taken: Collection[str]) -> str:
    """The first name that no disk has."""
    names = (f"{TARGET_PREFIXES[bus]}{chr(ord('a') + number)}" for number in range(_MOST_DISKS))
    found = next((name for name in names if name not in taken), None)
    if found is None:
        reason = f"a server can have {_MOST_DISKS} at the most"
        raise BadOption("disks", reason, "remove one first")
    return found


def _hardware(host: Host, request: ServerRequest) -> Hardware:
    properties = request.image.properties
    secure = Firmware.UEFI if request.devices.secure_boot else None
    firmware = request.firmware or secure or firmware_of(properties)
    virt_type = host.choose_virt_type()
    machine = machine_of(properties) or _machine_for(firmware)
    return Hardware(
        virt_type=virt_type,
        firmware=firmware,
        machine=host.full_machine_name(virt_type, machine),
        disk_bus=disk_bus_of(properties),
        vif_model=vif_model_of(properties),
    )


def _direct_boot(found: BootImages, image: Image, root: Disk) -> DirectBoot:
    return DirectBoot(
        kernel=ImageRef.of(found.kernel),
        ramdisk=ImageRef.of(found.ramdisk) if found.ramdisk else None,
        command_line=command_line_of(image.properties) or f"root=/dev/{root.target} console=ttyS0",
    )


def _machine_for(firmware: Firmware) -> str:
    """Only q35 has what UEFI guests expect; else libvirt's own choice."""
    return "q35" if firmware is Firmware.UEFI else ""


def create(
    host: Host, request: ServerRequest, *, start: bool = True, progress: Progress = noop
) -> Server:
    server = plan_server(host, request)
    content = Creation(start=start, progress=progress, guest=request.guest)
    return make(host, server, content, request.networks)


def make(host: Host, server: Server, content: "Creation", asked: Sequence[Network]) -> Server:
    """A server that is planned, with the networks that were ``asked`` for."""
    verb = creation(host, content)
    notes = ServerJournal(host.records)
    with host.records.lock(server):
        beginning = _taking_its_name(host, server, asked)
        made = journal.run(verb, server, notes, host.watch, beginning)
    steps.warn_of_small_pools(host, made)
    LOG.info("created server %s (%s) on %s", made.name, made.id, host.name)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What a new server needs besides its record."""

    start: bool = True
    progress: Progress = noop
    guest: GuestConfiguration | None = None
    files: Mapping[str, ImageFile] = field(default_factory=dict)
    """What disks are made from that have no template, by their roles."""


USUAL = Creation()

Templates = dict[str, Template | None]
"""By the disk's role: of one step for the next. Whoever finds a server half made removes it, and
needs none."""


def creation(host: Host, content: Creation = USUAL) -> Verb[Server]:
    templates: Templates = {}
    all_steps = (
        Step("claim", as_step(partial(steps.claim, host)), partial(_give_back, host)),
        Step("template", as_step(partial(_fetch_templates, host, content, templates))),
        Step("disks", partial(_make_disks, host, content, templates), partial(_delete, host)),
        Step("domain", partial(steps.define, host), partial(steps.undefine, host)),
        Step("start", partial(steps.power_on, host), partial(steps.power_off, host)),
    )
    taken = all_steps if content.start else all_steps[:-1]
    arrived = partial(_runs, host)
    return Verb("create", taken, finished=without_operation, undone=noop, arrived=arrived)


def _runs(host: Host, server: Server, step: str) -> bool:
    """At its last step, and somebody may use it already: all that was left to do is to say so."""
    return step == "start" and host.domains.state(server.id) in ON


def _give_back(host: Host, server: Server) -> None:
    with steps.log_placement_errors(server):
        steps.release(host, server)


def _fetch_templates(host: Host, content: Creation, templates: Templates, server: Server) -> None:
    for disk in server.disks:
        image = server.image_of(disk)
        id = image.id if image else None
        templates[disk.role] = host.disks.fetch_template(disk, id, content.progress)


def _make_disks(host: Host, content: Creation, templates: Templates, server: Server) -> Server:
    """The record then has their true sizes."""
    drives = {Content.CONFIG: content.guest.drive(server)} if content.guest else {}

    def make_disk(disk: Disk) -> Disk:
        file, drive = content.files.get(disk.role), drives.get(disk.content, b"")
        return host.disks.create(disk, templates[disk.role], drive, file)

    return replace(server, disks=tuple(map(make_disk, server.disks)))


def _delete(host: Host, server: Server) -> None:
    for disk in server.disks:
        host.disks.delete(disk)


@contextmanager
def _taking_its_name(host: Host, server: Server, asked: Sequence[Network]) -> Iterator[None]:
    """Its record is written before another can ask for the name, or for a MAC or an address that
    was asked for."""
    with (
        host.records.lock_name(server.name),
        steps.taking_fixed(host, server, asked, server.networks),
    ):
        steps.refuse_taken_name(host, server)
        if host.shared.records.find(server.id):  # of a server that is imported under its own
            raise NameTaken("a server", server.id)
        yield
