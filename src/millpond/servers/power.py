"""Start, stop and reboot a server."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from millpond.errors import Conflict, GuestStaysOn
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

Tell = Callable[[str], None]
"""What is waited for, for people."""

_QUIET = 1.0
"""Seconds that nobody need be told of."""
REMOVAL, DETACHMENT, NIC_REMOVAL = "disk remove", "disk detach", "nic remove"
REMOVALS = (REMOVAL, DETACHMENT, NIC_REMOVAL)
"""A server may be stopped in the middle of them: then its guest holds nothing any more."""
_STOPPED_WITHIN = (*REMOVALS, "rename")
"""Of a rename, because libvirt may have started the domain with the host: then that waits for it
to be off."""


def start(host: Host, server: Server) -> None:
    """One that runs already is no error."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        steps.check_networks(host, current.networks)
        _refuse_open_ports(host, current)
        journal.run(starting(host), current, ServerJournal(host.records), host.watch)
    LOG.info("started server %s", server.name)


def _refuse_open_ports(host: Host, server: Server) -> None:
    if host.domains.state(server.id) in ON:  # then they are its own
        return
    if port := steps.find_open_port(host, server.networks):
        where = f"port {port.port} of {port.address}"
        raise Conflict(
            f"{where}, which server {server.name!r} publishes, is in use",
            "end what listens there, and start it again",
        )


def stop(host: Host, server: Server, *, patience: float, tell: Tell = noop) -> None:
    """Ask the guest to power off. Raises GuestStaysOn if it has not after ``patience`` seconds;
    without any, the plug is pulled."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(*_STOPPED_WITHIN, "stop"))
        if current.operation and current.operation.verb in _STOPPED_WITHIN:
            host.records.put(_keep_off(host, patience, tell, current))
        else:
            verb = stopping(host, patience=patience, tell=tell)
            journal.run(verb, without_operation(current), ServerJournal(host.records), host.watch)
    LOG.info("stopped server %s%s", server.name, "" if patience else " by pulling the plug")


def reboot(host: Host, server: Server, *, patience: float, tell: Tell = noop) -> None:
    """Off, as stop() does it, and on again, with the domain as the record says."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        steps.check_networks(host, current.networks)
        steps.refuse_overlays(host, current)
        verb = rebooting(host, patience=patience, tell=tell)
        journal.run(verb, current, ServerJournal(host.records), host.watch)
    LOG.info("rebooted server %s", server.name)


def starting(host: Host) -> Verb[Server]:
    """What the record speaks of is written into the domain: it may have changed by hand."""
    return Verb(
        "start",
        (
            Step("domain", partial(_define_if_off, host), noop),
            Step("start", partial(steps.power_on, host), partial(steps.sync_autostart, host)),
        ),
        finished=without_operation,
        undone=without_operation,
        resumes=True,
    )


def stopping(host: Host, *, patience: float = 0, tell: Tell = noop) -> Verb[Server]:
    """Interrupted, it goes on only if the guest has powered off meanwhile: else it still should
    run."""
    keep_off = partial(_keep_off, host, patience, tell)
    return Verb(
        "stop",
        (Step("stop", keep_off, partial(steps.sync_autostart, host)),),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is_off, host),
    )


def rebooting(host: Host, *, patience: float = 0, tell: Tell = noop) -> Verb[Server]:
    """Left at its first step, it goes on only if the guest has powered off meanwhile."""
    return Verb(
        "reboot",
        (
            Step("stop", as_step(partial(_stop, host, patience, tell)), noop),
            Step("domain", partial(_define_if_off, host), noop),
            Step("start", partial(steps.power_on, host), partial(steps.sync_autostart, host)),
        ),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is_off, host),
    )


def _keep_off(host: Host, patience: float, tell: Tell, server: Server) -> Server:
    _stop(host, patience, tell, server)
    off = replace(server, should_run=False)
    steps.sync_autostart(host, off)
    return off


def _is_off(host: Host, server: Server, step: str) -> bool:
    return step != "stop" or host.domains.state(server.id) not in ON


def _define_if_off(host: Host, server: Server) -> Server:
    if host.domains.state(server.id) not in ON:
        for disk in server.disks:
            host.disks.repair(disk)
        return steps.define(host, server)
    return server


def _stop(host: Host, patience: float, tell: Tell, server: Server) -> None:
    state = host.domains.state(server.id)
    if state not in ON:
        return
    if not patience or state == "crashed":
        host.domains.power_off(server.id)
        return
    if state not in ("running", "stopping"):
        raise GuestStaysOn(server.name, f"it is {state}, and its guest cannot power itself off")
    host.domains.shutdown(server.id)
    first = min(_QUIET, patience)
    if wait_until(lambda: host.domains.state(server.id) not in ON, first):
        return
    tell(f"waiting for the guest of {server.name} to power off, {patience:g} s at the most")
    if not wait_until(lambda: host.domains.state(server.id) not in ON, patience - first):
        raise GuestStaysOn(server.name, f"its guest has not powered off within {patience:g} s")
