"""What an operation left when its process died: finished or undone, by the journal's word. And
records that were lost: rebuilt from the domains (B31)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from millpond.errors import UnknownOperation
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON, MarkedDomain
from millpond.model.server import Server
from millpond.records import codec, journal
from millpond.records.journal import Verb
from millpond.records.records import ServerJournal
from millpond.servers import (
    cdrom,
    create,
    data_disks,
    delete,
    grow,
    nics,
    pause,
    power,
    rebuild,
    rename,
    rescue,
    resize,
    revert,
    settle,
    snapshot,
    steps,
)
from millpond.servers.evacuate_steps import EVACUATE
from millpond.servers.live_steps import LIVE_MIGRATE
from millpond.servers.live_transition import LIVE_TRANSITION
from millpond.servers.move_recovery import moving
from millpond.servers.move_steps import MIGRATE
from millpond.servers.transition import transition_verb
from millpond.servers.transition_steps import TRANSITION, Transit

LOG = logging.getLogger(__name__)

VERBS: Mapping[str, Callable[[Host, Any], Verb[Server]]] = {
    "create": lambda host, _: create.creation(host),
    "delete": delete.deletion,
    "start": lambda host, _: power.starting(host),
    "stop": lambda host, _: power.stopping(host),
    "reboot": lambda host, _: power.rebooting(host),
    "pause": lambda host, _: pause.pausing(host),
    "unpause": lambda host, _: pause.unpausing(host),
    "rebuild": rebuild.rebuilding,
    "rescue": rescue.rescuing,
    "unrescue": rescue.unrescuing,
    "rename": rename.renaming,
    "resize": resize.resizing,
    "resize save": lambda host, _: revert.saving(host),
    "resize confirm": lambda host, _: revert.confirming(host),
    "resize revert": lambda host, _: revert.reverting(host),
    "grow": grow.growing,
    "disk add": data_disks.adding,
    "disk remove": data_disks.removing,
    "disk attach": data_disks.attaching,
    "disk detach": data_disks.detaching,
    "cdrom insert": cdrom.inserting,
    "cdrom eject": lambda host, _: cdrom.ejecting(host),
    "nic add": nics.adding,
    "nic remove": nics.removing,
    "snapshot": snapshot.snapshotting,
    settle.SETTLE: settle.settling,
    MIGRATE: lambda host, details: moving(host, MIGRATE, details),
    LIVE_MIGRATE: lambda host, details: moving(host, LIVE_MIGRATE, details),
    TRANSITION: lambda host, details: transition_verb(Transit(host=host, details=details)),
    LIVE_TRANSITION: lambda host, details: transition_verb(Transit(host=host, details=details)),
    EVACUATE: lambda host, details: moving(host, EVACUATE, details),
}
"""Each takes the details that are read for a verb of its name."""


def recover(host: Host, server: Server) -> str:
    """Finish or undo it; what was done, in words. Busy if somebody works on it after all."""
    with host.records.lock(server):
        current = host.records.find(server.id)
        if current is None or current.operation is None:
            return "nothing was left to do"
        operation = current.operation
        if operation.verb not in VERBS:
            raise UnknownOperation(operation.verb, operation.step)
        verb = VERBS[operation.verb](host, operation.details)
        frees = operation.verb == "delete"  # as the first run of it
        notes = ServerJournal(host.records, operation.details, insists=not frees)
        forward = verb.goes_forward(current, operation.step)
        journal.recover(verb, operation.step, current, notes, host.watch)
    done = "finished" if forward else "undone"
    LOG.info("server %s: %s was %s", server.name, operation.verb, done)
    return f"{operation.verb} was {done}"


def rebuild_records(host: Host) -> list[Server]:
    """Rebuild lost records from the domains, and put our mark on those."""
    return [
        server
        for domain in steps.unrecorded_domains(host)
        if (server := _rebuild_record(host, domain))
    ]


def _rebuild_record(host: Host, domain: MarkedDomain) -> Server | None:
    """A domain that was cloned manually carries another server's record: it is none of ours."""
    found = _server(domain)
    if found.id != domain.uuid:
        LOG.warning("domain %s carries the record of server %s: left alone", domain.name, found.id)
        return None
    runs = host.domains.state(found.id) in ON
    should_run = runs or found.id in host.autostart.ids()
    server = replace(found, host=host.name, should_run=should_run, leftovers=())
    with host.records.lock(server):
        if elsewhere := host.records.host_of(server.id):
            LOG.warning("domain %s is left alone: its server is on %s", domain.name, elsewhere)
            return None
        steps.write_metadata(host, server)
        steps.sync_autostart(host, server)
        host.records.put(server)
    LOG.info("adopted server %s (%s)", server.name, server.id)
    return server


def _server(domain: MarkedDomain) -> Server:
    where = Path(f"metadata of domain {domain.name}")
    return codec.decode_server(domain.record.record.encode(), where)
