"""Pause a server's guest and let it go on: it stays in memory, and does nothing in between."""

import logging
from functools import partial

from millpond.errors import WrongState
from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.streams import check_unpaused, refuse_waiting

LOG = logging.getLogger(__name__)

_RUNNING, _PAUSED = "running", "paused"


def pause(host: Host, server: Server) -> bool:
    """False if it was paused already. Raises Conflict if it waits for what is not served."""
    refuse_waiting(host, server)
    return _change(host, server, _RUNNING, pausing(host))


def unpause(host: Host, server: Server) -> bool:
    """False if it was not paused. Also one that QEMU has paused because a disk was full, or could
    not be read; where the guest meets the same again, it waits again."""
    was_paused = _change(host, server, _PAUSED, unpausing(host))
    check_unpaused(host, server)
    return was_paused


def _change(host: Host, server: Server, needed: str, verb: Verb[Server]) -> bool:
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        state = host.domains.state(server.id) or "missing"
        if state not in (_RUNNING, _PAUSED):
            raise WrongState(server.name, state, needed)
        if state != needed:
            return False
        journal.run(verb, current, ServerJournal(host.records), host.watch)
    LOG.info("%sd server %s", verb.name, server.name)
    return True


def pausing(host: Host) -> Verb[Server]:
    """Interrupted before the guest was paused, it is not paused later."""
    return Verb(
        "pause",
        (Step("pause", as_step(partial(_suspend, host)), partial(_resume, host)),),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is, host, _PAUSED),
    )


def unpausing(host: Host) -> Verb[Server]:
    return Verb(
        "unpause",
        (Step("resume", as_step(partial(_resume, host)), partial(_suspend, host)),),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is, host, _RUNNING),
    )


def _suspend(host: Host, server: Server) -> None:
    """One that is paused already, or has powered itself off, is no error."""
    if host.domains.state(server.id) == _RUNNING:
        host.domains.suspend(server.id)


def _resume(host: Host, server: Server) -> None:
    host.domains.resume(server.id)


def _is(host: Host, state: str, server: Server, _step: str) -> bool:
    return host.domains.state(server.id) == state
