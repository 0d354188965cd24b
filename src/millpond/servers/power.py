"""Start, stop and reboot a server."""

import logging
from functools import partial

from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.callbacks import noop
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.system.waiting import wait_until

LOG = logging.getLogger(__name__)

REMOVAL = "disk remove"
"""A server may be stopped in the middle of it: then its guest holds no disk any more."""


def start(host: Host, server: Server) -> None:
    """One that runs already is no error."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        journal.run(starting(host), current, ServerJournal(host.records), host.watch)
    LOG.info("started server %s", server.name)


def stop(host: Host, server: Server, *, patience: float) -> bool:
    """Ask the guest to power off, and pull the plug if it has not after ``patience`` seconds.

    Whether the guest did it itself.
    """
    with host.records.lock(server):
        steps.load_idle(host, server, but=REMOVAL)
        clean = _stop(host, patience, server)
    LOG.info("stopped server %s%s", server.name, "" if clean else " by pulling the plug")
    return clean


def reboot(host: Host, server: Server, *, patience: float) -> None:
    """Off and on again, with the domain defined anew from the record."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        verb = rebooting(host, patience=patience)
        journal.run(verb, current, ServerJournal(host.records), host.watch)
    LOG.info("rebooted server %s", server.name)


def starting(host: Host) -> Verb[Server]:
    """The domain is defined anew: by hand or by an older version it may have changed."""
    return Verb(
        "start",
        (
            Step("domain", partial(_define_if_off, host), noop),
            Step("start", partial(steps.power_on, host), noop),
        ),
        finished=without_operation,
        undone=without_operation,
        resumes=True,
    )


def rebooting(host: Host, *, patience: float = 0) -> Verb[Server]:
    return Verb(
        "reboot",
        (
            Step("stop", as_step(partial(_stop, host, patience)), noop),
            Step("domain", partial(_define_if_off, host), noop),
            Step("start", partial(steps.power_on, host), noop),
        ),
        finished=without_operation,
        undone=without_operation,
        resumes=True,
    )


def _define_if_off(host: Host, server: Server) -> Server:
    if host.domains.state(server.id) not in ON:
        for disk in server.disks:
            host.disks.repair(disk)
        return steps.define(host, server)
    return server


def _stop(host: Host, patience: float, server: Server) -> bool:
    state = host.domains.state(server.id)
    if state not in ON:
        return True
    if state == "running" and patience > 0:
        host.domains.shutdown(server.id)
        if wait_until(lambda: host.domains.state(server.id) not in ON, patience):
            return True
    host.domains.power_off(server.id)
    return False
