"""Media in the CD-ROM drive of a server, also while it runs.

A medium is a disk of its own: an empty overlay of the ISO image's template.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from millpond.disks.backend import DiskRequest
from millpond.errors import BadOption, Conflict, Tool, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.operation import InsertDetails
from millpond.model.server import CdromDrive, Content, ImageRef, Server
from millpond.model.template import Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.create import cdrom_bus, free_target
from millpond.servers.domain_xml import CDROM, disk_xml, empty_drive_xml

LOG = logging.getLogger(__name__)

Change = Callable[[Server], Server]


def insert(host: Host, server: Server, image: Image, progress: Progress = noop) -> Server:
    """Also while it runs, if it has a drive: one that has none gets it while it is off."""
    if image.format is not ImageFormat.ISO:
        reason = f"{image.name!r} is a {image.format} image, and no ISO"
        raise BadOption("IMAGE", reason, f"'{Tool.IMAGES}' shows which are")
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        drive = current.cdrom or _plan_drive(host, current)
        if drive.image:
            what = f"the CD-ROM drive of {server.name!r} has {drive.image.name!r} in it"
            raise Conflict(what, f"'{Tool.SERVER} cdrom eject {server.name}' takes it out")
        loaded = _plan_medium(host, current, drive, image)
        details = InsertDetails(adds_drive=current.cdrom is None)
        verb, notes = inserting(host, details, progress), ServerJournal(host.records, details)
        made = journal.run(verb, loaded, notes, host.watch)
    LOG.info("inserted %s into server %s", image.name, server.name)
    return made


def eject(host: Host, server: Server, *, force: bool = False) -> Server:
    """A drive that is empty is no error."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        if not current.cdrom or not current.cdrom.image:
            return current
        verb, notes = ejecting(host, force=force), ServerJournal(host.records)
        made = journal.run(verb, current, notes, host.watch)
    LOG.info("ejected the medium of server %s", server.name)
    return made


def _plan_drive(host: Host, server: Server) -> CdromDrive:
    if host.domains.state(server.id) in ON:
        raise Unsupported(
            f"inserting a medium while server {server.name!r} runs",
            "it has no CD-ROM drive",
            f"stop it first, and it gets one: {Tool.SERVER} stop {server.name}",
        )
    bus = cdrom_bus(server.hardware.machine)
    return CdromDrive(target=free_target(bus, steps.targets(host, server)), bus=bus)


def _plan_medium(host: Host, server: Server, drive: CdromDrive, image: Image) -> Server:
    request = DiskRequest(
        server=server.id, role=CDROM, content=Content.CDROM, image=image, target=drive.target
    )
    medium = replace(host.disks.plan(request), bus=drive.bus)
    filled = replace(drive, image=ImageRef.of(image))
    return replace(server, cdrom=filled, disks=(*server.disks, medium))


def inserting(host: Host, details: InsertDetails, progress: Progress = noop) -> Verb[Server]:
    """A medium is only read: what was begun is undone."""
    templates: list[Template | None] = []
    before = _without_drive if details.adds_drive else _without_medium
    return Verb(
        "cdrom insert",
        (
            Step("claim", as_step(partial(steps.claim, host)), partial(_restore, host, before)),
            Step("template", as_step(partial(_fetch, host, progress, templates))),
            Step("volume", partial(_make, host, templates), partial(_delete, host)),
            Step(
                "load", as_step(partial(_load, host)), partial(_unload, host, before, force=True)
            ),
        ),
        finished=without_operation,
        undone=lambda each: without_operation(before(each)),
    )


def ejecting(host: Host, *, force: bool = False) -> Verb[Server]:
    return Verb(
        "cdrom eject",
        (
            Step(
                "unload",
                as_step(partial(_unload, host, _without_medium, force=force)),
                partial(_load, host),
            ),
            Step("volume", as_step(partial(_delete, host))),
            Step("release", as_step(partial(_claim_without, host))),
        ),
        finished=lambda each: without_operation(_without_medium(each)),
        undone=without_operation,
        resumes=True,
    )


def _fetch(
    host: Host, progress: Progress, templates: list[Template | None], server: Server
) -> None:
    image = server.images[Content.CDROM]
    templates.append(host.disks.fetch_template(server.get_disk(CDROM), image.id, progress))


def _make(host: Host, templates: list[Template | None], server: Server) -> Server:
    medium = server.get_disk(CDROM)
    made = host.disks.create(medium, templates[-1])
    return replace(server, disks=tuple(made if each is medium else each for each in server.disks))


def _delete(host: Host, server: Server) -> None:
    host.disks.delete(server.get_disk(CDROM))


def _load(host: Host, server: Server) -> None:
    medium = server.get_disk(CDROM)
    if host.domains.state(server.id) in ON:
        xml = disk_xml(server, medium, host.disks.chain(medium))
        host.cdroms.change_medium(server.id, xml)
    _write_down(host, server)


def _unload(host: Host, rest: Change, server: Server, *, force: bool) -> None:
    assert server.cdrom
    if host.domains.state(server.id) in ON:
        host.cdroms.change_medium(server.id, empty_drive_xml(server.cdrom), force=force)
    _write_down(host, rest(server))


def _write_down(host: Host, server: Server) -> None:
    """In the domain; the drive of a running one has been seen to."""
    if host.domains.state(server.id) in ON:
        steps.write_metadata(host, without_operation(server))
    else:
        steps.define(host, server)


def _restore(host: Host, before: Change, server: Server) -> None:
    steps.unclaim(host, _without_medium(server))
    _write_down(host, before(server))


def _claim_without(host: Host, server: Server) -> None:
    steps.claim(host, _without_medium(server))


def _without_medium(server: Server) -> Server:
    drive = server.cdrom and replace(server.cdrom, image=None)
    disks = tuple(each for each in server.disks if each.role != CDROM)
    return replace(server, cdrom=drive, disks=disks)


def _without_drive(server: Server) -> Server:
    return replace(_without_medium(server), cdrom=None)
