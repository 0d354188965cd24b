"""Delete a server: begun, it only goes forward."""

import logging
from collections.abc import Callable
from functools import partial

from millpond.compute import disks, spawn
from millpond.compute.host import Host
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, deed, nothing
from millpond.records.records import ServerJournal, settled

LOG = logging.getLogger(__name__)

Act = Callable[[Host, Server], None]


def delete(host: Host, server: Server) -> None:
    """Whatever state it is in: also one that was left in the middle of something."""
    with host.records.lock(server):
        current = host.records.find(server.id)
        if current is None:
            return
        _look_at_the_disks(host, current)
        notes = ServerJournal(host.records, insists=False)
        journal.run(deletion(host), current, notes, host.watch)
    LOG.info("deleted server %s (%s)", server.name, server.id)


def _look_at_the_disks(host: Host, server: Server) -> None:
    """A pool that cannot be used is an error before anything is changed."""
    for disk in server.disks:
        host.storage_of(disk).exists(disk)


def deletion(host: Host) -> Verb[Server]:
    def step(name: str, act: Act) -> Step[Server]:
        return Step(name, deed(partial(act, host)))

    return Verb(
        "delete",
        (
            step("stop", spawn.power_off),
            step("domain", spawn.undefine),
            step("disks", disks.delete),
        ),
        finished=nothing,
        undone=settled,
        resumes=True,
    )
