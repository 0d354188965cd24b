"""Rebuild a server: its root disk and its config drive are made again, and the old ones go last.

While it lasts the record has both: the new ones in their places, the old ones as detached disks
with a role of their own.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from millpond.disks.backend import DiskRequest
from millpond.errors import Tool, Unsupported, VolumeExists
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.boot_images import find_boot_images
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.image_properties import disk_bus_of, firmware_of
from millpond.model.names import ImageId, rebuilt_name
from millpond.model.operation import ROOT, RebuildDetails
from millpond.model.server import Content, Disk, ImageRef, Server
from millpond.model.sizes import enough_for, format_size
from millpond.model.template import Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.config_drive import GuestConfiguration, read_drive
from millpond.servers.power import runs_on, starts_on
from millpond.servers.shutdown import Tell, shut_down, start_again
from millpond.servers.transition import bring_into_pools, refuse_legacy_root
from millpond.system import streams

LOG = logging.getLogger(__name__)

_OLD = ".old"
"""After the role of a disk that is being replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilding:
    """What the living process knows, and whoever undoes it does not need."""

    patience: float = 0
    """As for stop()."""
    tell: Tell = noop
    progress: Progress = noop
    guest: GuestConfiguration | None = None
    templates: list[Template | None] = field(default_factory=list)


UNDOING = Rebuilding()


def rebuild(
    host: Host,
    server: Server,
    image: Image,
    *,
    patience: float,
    tell: Tell = noop,
    progress: Progress = noop,
) -> Server:
    """One that runs is stopped, as stop() does it, and started again."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        check_rebuild(host, current, image)
        current = bring_into_pools(host, current)
        refuse_legacy_root(current)
        guest = _read_guest(host, current)
        planned = plan_rebuild(host, current, image, guest)
        for disk in _new(planned):
            if host.disks.exists(disk):  # no record names it: it is somebody's
                raise VolumeExists(disk.pool, disk.volume)
        before, ran = current.image, host.domains.state(server.id) in ON
        details = RebuildDetails(image=before.id, name=before.name, format=before.format, ran=ran)
        making = Rebuilding(patience=patience, tell=tell, progress=progress, guest=guest)
        verb, notes = rebuilding(host, details, making), ServerJournal(host.records, details)
        rebuilt = journal.run(verb, planned, notes, host.watch)
    LOG.info("rebuilt server %s from %s", server.name, image.name)
    return rebuilt


def check_rebuild(host: Host, server: Server, image: Image) -> None:
    """Raises what makes it impossible; changes nothing."""
    steps.refuse_unsettled(server)
    what, root = f"rebuilding server {server.name!r} from {image.name!r}", server.get_disk()
    if image.format is ImageFormat.ISO:
        advised = f"'{Tool.SERVER} cdrom insert {server.name} {image.name}' installs from it"
        raise Unsupported(what, "it is an ISO image", advised)
    boot = find_boot_images(
        image.format, image.properties, lambda each: host.images.describe(ImageId(each))
    )
    if server.boot or boot:
        reason = "one of the two has a kernel of its own"
        raise Unsupported(what, reason, "create another server")
    if image.virtual_size > root.size:
        reason = (
            f"the image needs {format_size(image.virtual_size)}, and its root disk has "
            f"{format_size(root.size)}"
        )
        larger = f"{Tool.SERVER} resize {server.name} --disk {enough_for(image.virtual_size)}"
        raise Unsupported(what, reason, f"grow it first: {larger}")
    hardware, asks = server.hardware, image.properties
    for name, has, wants in (
        ("hw_firmware_type", hardware.firmware, firmware_of(asks)),
        ("hw_disk_bus", hardware.disk_bus, disk_bus_of(asks)),
    ):
        if name in asks and has != wants:
            reason = f"the image asks for {name} {wants}, and the server has {has}"
            raise Unsupported(what, reason, "create another server")
    steps.check_networks(host, server.networks)
    steps.refuse_overlays(host, server)


def plan_rebuild(
    host: Host, server: Server, image: Image, guest: GuestConfiguration | None = None
) -> Server:
    """Its record while both disks are there."""
    request = partial(DiskRequest, server=server.id)
    root = server.get_disk()
    wanted = {root.role: request(role=root.role, image=image, size=root.size, target=root.target)}
    if guest:
        drive = next(each for each in server.disks if each.content is Content.CONFIG)
        wanted[drive.role] = request(
            role=drive.role, content=Content.CONFIG, size=guest.drive_size, target=drive.target
        )
    disks = [
        _after(host.disks.plan(wanted[each.role]), each) if each.role in wanted else each
        for each in server.disks
    ]
    old = [
        replace(each, role=f"{each.role}{_OLD}", target="")
        for each in server.disks
        if each.role in wanted
    ]
    return replace(server, image=ImageRef.of(image), disks=(*disks, *old))


def _after(planned: Disk, old: Disk) -> Disk:
    taken = planned.volume == old.volume
    volume = rebuilt_name(planned.volume) if taken else planned.volume
    return replace(planned, volume=volume, bus=old.bus)


def _read_guest(host: Host, server: Server) -> GuestConfiguration | None:
    """None, and the config drive stays, where there is none that we wrote."""
    drives = [each for each in server.disks if each.content is Content.CONFIG and not each.path]
    for drive in drives:
        pieces = host.pools.ensure(drive.pool).pieces(drive.volume)
        with suppress(Unsupported):
            return read_drive(b"".join(streams.plain(pieces)))
    return None


def rebuilding(host: Host, details: RebuildDetails, making: Rebuilding = UNDOING) -> Verb[Server]:
    """Undone until its guest may have run on the new disks."""
    before = partial(_before, details)
    return Verb(
        "rebuild",
        (
            Step("claim", as_step(partial(steps.claim, host)), partial(_unclaim, host, details)),
            Step("template", as_step(partial(_fetch, host, making))),
            Step("volumes", partial(_make, host, making), partial(_delete_new, host)),
            Step(
                "stop",
                as_step(partial(shut_down, host, making.patience, making.tell)),
                partial(start_again, host, details.ran),
            ),
            Step("domain", partial(_define, host), partial(_define_before, host, details)),
            Step("start", partial(_start, host, details), partial(_stop, host, details)),
            Step("remove", as_step(partial(_delete_old, host))),
            Step("release", as_step(partial(_claim_new, host))),
        ),
        finished=lambda server: without_operation(_rebuilt(server)),
        undone=lambda server: without_operation(before(server)),
        arrived=partial(_runs_on_new, host),
        no_return="remove",
    )


def _old(server: Server) -> Iterator[Disk]:
    return (each for each in server.disks if each.role.endswith(_OLD))


def _new(server: Server) -> Iterator[Disk]:
    replaced = {each.role.removesuffix(_OLD) for each in _old(server)}
    return (each for each in server.disks if each.role in replaced)


def _rebuilt(server: Server) -> Server:
    kept = tuple(each for each in server.disks if not each.role.endswith(_OLD))
    return replace(server, disks=kept)


def _before(details: RebuildDetails, server: Server) -> Server:
    """With the old disks in the places of the new ones."""
    old = {each.role.removesuffix(_OLD): each for each in _old(server)}
    disks = (
        replace(old[each.role], role=each.role, target=each.target) if each.role in old else each
        for each in _rebuilt(server).disks
    )
    image = ImageRef(
        id=ImageId(details.image), name=details.name, format=ImageFormat(details.format)
    )
    return replace(server, image=image, disks=tuple(disks))


def _unclaim(host: Host, details: RebuildDetails, server: Server) -> None:
    steps.unclaim(host, _before(details, server))


def _claim_new(host: Host, server: Server) -> None:
    steps.claim(host, _rebuilt(server))


def _fetch(host: Host, making: Rebuilding, server: Server) -> None:
    root = server.get_disk(ROOT)
    making.templates.append(host.disks.fetch_template(root, server.image.id, making.progress))


def _make(host: Host, making: Rebuilding, server: Server) -> Server:
    drive = making.guest.drive(_rebuilt(server)) if making.guest else b""
    made = {}
    for disk in _new(server):
        if disk.role == ROOT:
            made[disk.role] = host.disks.create(disk, making.templates[-1])
        else:
            made[disk.role] = host.disks.create(disk, None, drive)
    return replace(server, disks=tuple(made.get(each.role, each) for each in server.disks))


def _delete_new(host: Host, server: Server) -> None:
    for disk in _new(server):
        host.disks.delete(disk)


def _delete_old(host: Host, server: Server) -> None:
    for disk in _old(server):
        host.disks.delete(disk)


def _define(host: Host, server: Server) -> Server:
    defined = steps.define(host, _rebuilt(server))
    return replace(server, hardware=defined.hardware)


def _define_before(host: Host, details: RebuildDetails, server: Server) -> None:
    steps.define(host, _before(details, server))


def _start(host: Host, details: RebuildDetails, server: Server) -> Server:
    return steps.power_on(host, server) if details.ran else server


def _stop(host: Host, details: RebuildDetails, server: Server) -> None:
    if details.ran:
        steps.power_off(host, server)


def _runs_on_new(host: Host, server: Server, step: str) -> bool:
    """Or did: nobody knows what one that is off by now has written."""
    new = server.get_disk(ROOT)
    match step:
        case "domain":
            return runs_on(host, server, new.target, new)
        case "start":
            return starts_on(host, server, new.target, new)
    return False
