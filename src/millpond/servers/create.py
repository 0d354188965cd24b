"""Create a server: claim, template, disks, domain, start; a failure leaves nothing behind."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.server import Content, Server
from millpond.model.template import Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step, nothing
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.owner import refuse_foreign_servers
from millpond.servers.request import ServerRequest, planned
from millpond.system.files import Progress, silent

LOG = logging.getLogger(__name__)


def create(
    host: Host, request: ServerRequest, *, start: bool = True, progress: Progress = silent
) -> Server:
    server = planned(host, request)
    content = Creation(start=start, progress=progress, config_drive=request.config_drive)
    verb = creation(host, content)
    notes = ServerJournal(host.records)
    with host.records.lock(server):
        made = journal.run(verb, server, notes, host.watch, _taking_its_name(host, server))
    LOG.info("created server %s (%s) on %s", made.name, made.id, host.name)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What a new server needs besides its record."""

    start: bool = True
    progress: Progress = silent
    config_drive: bytes = b""


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
    return Verb("create", taken, finished=without_operation, undone=nothing, arrived=arrived)


def _runs(host: Host, server: Server, step: str) -> bool:
    """At its last step, and somebody may use it already: all that was left to do is to say so."""
    return step == "start" and host.domains.state(server.id) in ON


def _give_back(host: Host, server: Server) -> None:
    with steps.log_placement_errors(server):
        steps.release(host, server)


def _fetch_templates(host: Host, content: Creation, templates: Templates, server: Server) -> None:
    for disk in server.disks:
        image = server.images.get(disk.content)
        id = image.id if image else None
        templates[disk.role] = host.disks.fetch_template(disk, id, content.progress)


def _make_disks(host: Host, content: Creation, templates: Templates, server: Server) -> Server:
    """The record then has their true sizes."""
    drives = {Content.CONFIG: content.config_drive}
    made = (
        host.disks.create(disk, templates[disk.role], drives.get(disk.content, b""))
        for disk in server.disks
    )
    return replace(server, disks=tuple(made))


def _delete(host: Host, server: Server) -> None:
    for disk in server.disks:
        host.disks.delete(disk)


@contextmanager
def _taking_its_name(host: Host, server: Server) -> Iterator[None]:
    """Its record is written before another can ask for the name."""
    with host.records.lock_name(server.name):
        steps.refuse_taken_name(host, server)
        refuse_foreign_servers(host)
        yield
