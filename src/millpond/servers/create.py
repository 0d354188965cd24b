"""Create a server: claim, template, disks, domain, start; a failure leaves nothing behind."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from millpond.libvirt.domains import ON
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, deed, nothing
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import disks, steps
from millpond.servers.host import Host
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


def creation(host: Host, content: Creation = USUAL) -> Verb[Server]:
    all_steps = (
        Step("claim", deed(partial(steps.claim, host)), partial(_give_back, host)),
        Step("template", partial(_fetch_templates, host, content)),
        Step("disks", partial(_make_disks, host, content), partial(disks.delete, host)),
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


def _fetch_templates(host: Host, content: Creation, server: Server) -> Server:
    for disk in server.disks:
        disks.template(host, server, disk, content.progress)
    return server


def _make_disks(host: Host, content: Creation, server: Server) -> Server:
    return disks.make(host, server, content.config_drive)


@contextmanager
def _taking_its_name(host: Host, server: Server) -> Iterator[None]:
    """Its record is written before another can ask for the name."""
    with host.records.lock_name(server.name):
        steps.refuse_taken_name(host, server)
        refuse_foreign_servers(host)
        yield
