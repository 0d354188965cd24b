"""Delete a server: begun, it only goes forward."""

import logging
from collections.abc import Callable
from functools import partial

from millpond.compute import disks, freezing, spawn
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
        left = current.operation.details if current.operation else None
        notes = ServerJournal(host.records, left, insists=False)
        journal.run(deletion(host), current, notes, host.watch)
    LOG.info("deleted server %s (%s)", server.name, server.id)


def _look_at_the_disks(host: Host, server: Server) -> None:
    """A pool that cannot be used is an error before anything is changed."""
    for disk in server.disks:
        host.storage_of(disk).exists(disk)
    if server.overlay:
        host.pools.named(server.overlay.pool)


def _delete_disks(host: Host, server: Server) -> None:
    """With what an interrupted operation left beside them: its details were passed on to us."""
    freezing.forget(host, server)
    disks.delete(host, server)


def deletion(host: Host) -> Verb[Server]:
    def step(name: str, act: Act) -> Step[Server]:
        return Step(name, deed(partial(act, host)))

    return Verb(
        "delete",
        (
            step("stop", spawn.power_off),
            step("domain", spawn.undefine),
            step("disks", _delete_disks),
        ),
        finished=nothing,
        undone=settled,
        resumes=True,
    )
