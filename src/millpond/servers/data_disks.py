"""Disks that come to a server and leave it, also while it runs."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from millpond.disks.backend import DiskRequest
from millpond.errors import DetachTimeout, Interrupted, Unsupported, VolumeExists
from millpond.hosts.host import Host
from millpond.libvirt.domain_disks import DETACH_PATIENCE
from millpond.libvirt.domains import ON
from millpond.model.operation import DiskDetails
from millpond.model.server import Content, Disk, Server
from millpond.model.sizes import format_size, whole_sectors
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.create import free_target
from millpond.servers.domain_xml import disk_xml
from millpond.servers.own_disks import get_own_disk
from millpond.servers.power import DETACHMENT, REMOVAL

LOG = logging.getLogger(__name__)


def add(host: Host, server: Server, size: int) -> Disk:
    """An empty disk of the backend that images_type names."""
    size = whole_sectors(size)
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        disk = _plan_disk(host, current, size)
        if host.disks.exists(disk):  # no record names it: it is somebody's
            raise VolumeExists(disk.pool, disk.volume)
        details = DiskDetails(role=disk.role)
        larger = replace(current, disks=(*current.disks, disk))
        notes = ServerJournal(host.records, details)
        made = journal.run(adding(host, details), larger, notes, host.watch)
    LOG.info("added %s of %s to server %s", disk.role, format_size(size), server.name)
    return made.get_disk(disk.role)


def remove(host: Host, server: Server, name: str) -> Disk:
    """Called again while the guest still has the disk, it goes on waiting for it."""
    disk = _take_away(host, server, name, REMOVAL, removing)
    LOG.info("removed %s from server %s", disk.role, server.name)
    return disk


def detach(host: Host, server: Server, name: str) -> Disk:
    """The server keeps it, and its guest has it no longer. Called again as remove() is."""
    disk = _take_away(host, server, name, DETACHMENT, detaching)
    LOG.info("detached %s from server %s", disk.role, server.name)
    return disk


def _take_away(
    host: Host,
    server: Server,
    name: str,
    verb_name: str,
    make_verb: Callable[[Host, DiskDetails], Verb[Server]],
) -> Disk:
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(verb_name,))
        disk = get_own_disk(current, name)
        if disk.content is not Content.DATA:
            reason = "it came with the server and goes with it"
            what = f"'{verb_name} {disk.role}'"
            raise Unsupported(what, reason, "only data disks come and go")
        details = DiskDetails(role=disk.role)
        verb, notes = make_verb(host, details), ServerJournal(host.records, details)
        if (left := current.operation) is None:
            journal.run(verb, current, notes, host.watch)
        elif left.details == details:
            journal.recover(verb, left.step, current, notes, host.watch)
        else:
            raise Interrupted(server.name, left.verb, left.step)
    return disk


def attach(host: Host, server: Server, name: str) -> Disk:
    """One that was detached. One that its server has already is no error."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        disk = get_own_disk(current, name)
        if disk.is_attached:
            return disk
        if disk.content is not Content.DATA:
            raise Unsupported(f"'disk attach {disk.role}'", "it is no disk of the guest")
        target = free_target(server.hardware.disk_bus, steps.targets(host, current))
        details = DiskDetails(role=disk.role)
        larger = _with_target(details, target, current)
        notes = ServerJournal(host.records, details)
        made = journal.run(attaching(host, details), larger, notes, host.watch)
    LOG.info("attached %s to server %s as %s", disk.role, server.name, target)
    return made.get_disk(disk.role)


def adding(host: Host, details: DiskDetails) -> Verb[Server]:
    """What its process left rolls forward: the guest may have the disk, and write to it."""
    undone = partial(_without, details)
    taken = (
        Step("claim", as_step(partial(steps.claim, host)), partial(_unclaim, host, details)),
        Step("volume", partial(_make, host, details), partial(_delete, host, details)),
        Step(
            "attach",
            as_step(partial(_attach, host, details)),
            partial(_detach, host, details, undone),
        ),
    )
    return Verb(
        "disk add",
        taken,
        finished=without_operation,
        undone=lambda each: without_operation(undone(each)),
        resumes=True,
    )


def removing(host: Host, details: DiskDetails) -> Verb[Server]:
    """The disk leaves the record last: until then it is known what is to be removed."""
    finished = partial(_without, details)
    taken = (
        Step(
            "detach",
            as_step(partial(_detach, host, details, finished)),
            partial(_attach_again, host, details),
        ),
        Step("volume", as_step(partial(_delete, host, details))),
        Step("release", as_step(partial(_claim_without, host, details))),
    )
    return Verb(
        REMOVAL,
        taken,
        finished=lambda each: without_operation(finished(each)),
        undone=without_operation,
        resumes=True,
    )


def detaching(host: Host, details: DiskDetails) -> Verb[Server]:
    finished = partial(_with_target, details, "")
    taken = Step(
        "detach",
        as_step(partial(_detach, host, details, finished)),
        partial(_attach_again, host, details),
    )
    return Verb(
        DETACHMENT,
        (taken,),
        finished=lambda each: without_operation(finished(each)),
        undone=without_operation,
        resumes=True,
    )


def attaching(host: Host, details: DiskDetails) -> Verb[Server]:
    """The record has the disk's target from the beginning. Goes forward, as adding() does."""
    undone = partial(_with_target, details, "")
    taken = Step(
        "attach",
        as_step(partial(_attach, host, details)),
        partial(_detach, host, details, undone),
    )
    return Verb(
        "disk attach",
        (taken,),
        finished=without_operation,
        undone=lambda each: without_operation(undone(each)),
        resumes=True,
    )


def _claim_without(host: Host, details: DiskDetails, server: Server) -> None:
    steps.claim(host, _without(details, server))


def _unclaim(host: Host, details: DiskDetails, server: Server) -> None:
    steps.unclaim(host, _without(details, server))


def _plan_disk(host: Host, server: Server, size: int) -> Disk:
    taken = {disk.role for disk in server.disks}
    number = next(n for n in range(len(taken) + 1) if f"disk.data{n}" not in taken)
    request = DiskRequest(
        server=server.id,
        role=f"disk.data{number}",
        content=Content.DATA,
        size=size,
        target=free_target(server.hardware.disk_bus, steps.targets(host, server)),
    )
    return host.disks.plan(request)


def _make(host: Host, details: DiskDetails, server: Server) -> Server:
    disk = server.get_disk(details.role)
    made = host.disks.create(disk, None)
    return replace(server, disks=tuple(made if each is disk else each for each in server.disks))


def _delete(host: Host, details: DiskDetails, server: Server) -> None:
    host.disks.delete(server.get_disk(details.role))


def _attach(host: Host, details: DiskDetails, server: Server) -> None:
    disk = server.get_disk(details.role)
    if host.domains.state(server.id) in ON:
        if disk.is_attached:
            host.domain_disks.attach(server.id, disk_xml(server, disk, host.disks.chain(disk)))
        steps.write_metadata(host, without_operation(server))
    else:
        steps.define(host, server)


def _attach_again(host: Host, details: DiskDetails, server: Server) -> None:
    """Once it was asked, a guest may let the disk go however late, and nothing can stop it: as
    long as it has not, the removal stays recorded."""
    disk, running = server.get_disk(details.role), host.domains.description(server.id)
    if running and running.id is not None and running.disk(disk.target):
        raise DetachTimeout(disk.target, DETACH_PATIENCE)
    _attach(host, details, server)


def _detach(
    host: Host, details: DiskDetails, make_remaining: Callable[[Server], Server], server: Server
) -> None:
    disk, remaining = server.get_disk(details.role), make_remaining(server)
    if host.domains.state(server.id) in ON:
        if disk.is_attached:
            host.domain_disks.detach(server.id, disk_xml(server, disk, host.disks.chain(disk)))
        steps.write_metadata(host, without_operation(remaining))
    else:
        steps.define(host, remaining)


def _without(details: DiskDetails, server: Server) -> Server:
    kept = tuple(disk for disk in server.disks if disk.role != details.role)
    return replace(server, disks=kept)


def _with_target(details: DiskDetails, target: str, server: Server) -> Server:
    """Without one it is detached."""
    disks = (
        replace(each, target=target) if each.role == details.role else each
        for each in server.disks
    )
    return replace(server, disks=tuple(disks))
