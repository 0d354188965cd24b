"""Create a server: claim, template, disks, domain, start; a failure leaves nothing behind."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from millpond.errors import NameTaken, PlacementProblem, Tool
from millpond.libvirt.domains import ON
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, deed, nothing
from millpond.records.records import ServerJournal, settled
from millpond.servers import disks
from millpond.servers.domain_xml import domain_xml
from millpond.servers.host import Host
from millpond.servers.owner import refuse_foreign_servers
from millpond.servers.request import ServerRequest, planned
from millpond.system.files import Progress, silent

LOG = logging.getLogger(__name__)

_HEALED = f"'{Tool.REPAIR_PLACEMENT}' puts that right"


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
    steps = (
        Step("claim", deed(partial(claim, host)), partial(_give_back, host)),
        Step("template", partial(_fetch_templates, host, content)),
        Step("disks", partial(_make_disks, host, content), partial(disks.delete, host)),
        Step("domain", partial(define, host), partial(undefine, host)),
        Step("start", partial(power_on, host), partial(power_off, host)),
    )
    taken = steps if content.start else steps[:-1]
    arrived = partial(_runs, host)
    return Verb("create", taken, finished=settled, undone=nothing, arrived=arrived)


def _runs(host: Host, server: Server, step: str) -> bool:
    """At its last step, and somebody may use it already: all that was left to do is to say so."""
    return step == "start" and host.domains.state(server.id) in ON


def claim(host: Host, server: Server) -> None:
    host.claims.hold(server)


def release(host: Host, server: Server) -> None:
    host.claims.release(server)


@contextmanager
def whatever_placement_says(server: Server) -> Iterator[None]:
    """On the way back: a server is not left in the middle of something because of its claim."""
    try:
        yield
    except PlacementProblem as error:
        LOG.warning("%s may be counted wrongly in Placement: %s. %s", server.name, error, _HEALED)


def _give_back(host: Host, server: Server) -> None:
    with whatever_placement_says(server):
        release(host, server)


def define(host: Host, server: Server) -> Server:
    """The domain as the record says, whatever it was before."""
    server = _with_machine(host, server)
    log = host.find_consoles().make(server.id)
    chains = disks.chains(host, server)
    host.domains.define(domain_xml(settled(server), host.records.owner, log, chains))
    return server


def _with_machine(host: Host, server: Server) -> Server:
    """With the full name of its machine type. Of a record that says less, the one that its domain
    has had so far: a guest finds the hardware that it knows."""
    hardware = server.hardware
    full = host.domains.full_name_of_machine(hardware.virt_type, hardware.machine)
    if full == hardware.machine:
        return server
    domain = host.domains.description(server.id, defined=True)
    machine = (domain.machine if domain else None) or full
    return replace(server, hardware=replace(hardware, machine=machine))


def undefine(host: Host, server: Server) -> None:
    host.domains.undefine(server.id)
    host.find_consoles().remove(server.id)


def power_on(host: Host, server: Server) -> Server:
    with host.starts.hold():
        host.domains.start(server.id)
    return server


def power_off(host: Host, server: Server) -> None:
    host.domains.power_off(server.id)


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
        refuse_a_taken_name(host, server)
        refuse_foreign_servers(host)
        yield


def refuse_a_taken_name(host: Host, server: Server) -> None:
    if host.records.has_name(server.name):
        raise NameTaken("a server", server.name)
    if host.domains.names().get(server.name, server.id) != server.id:
        raise NameTaken(f"a domain of somebody else's on host {host.name}", server.name)
