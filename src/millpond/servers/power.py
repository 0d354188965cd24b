"""Start, stop and reboot a server."""

import logging
from dataclasses import replace
from functools import partial

from millpond.errors import Conflict, GuestStaysOn, WrongState
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.restart import restart as restart_guest
from millpond.model.callbacks import noop
from millpond.model.server import Disk, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps, streams
from millpond.servers.settle import SETTLE, finish
from millpond.servers.shutdown import Tell, shut_down
from millpond.servers.transition import bring_into_pools, try_plan, try_to_move
from millpond.servers.transition_steps import Transit
from millpond.xml.domain import DomainXml

LOG = logging.getLogger(__name__)

REMOVAL, DETACHMENT, NIC_REMOVAL = "disk remove", "disk detach", "nic remove"
REMOVALS = (REMOVAL, DETACHMENT, NIC_REMOVAL)
"""A server may be stopped in the middle of them: then its guest holds nothing any more."""
_STOPPED_WITHIN = (*REMOVALS, "rename")
"""Of a rename, because libvirt may have started the domain with the host: then that waits for it
to be off."""


def start(host: Host, server: Server) -> None:
    """One that runs already is no error."""
    with host.records.lock(server):
        current = finish(host, steps.load_idle(host, server, but=(SETTLE,)))
        steps.check_networks(host, current.networks)
        _refuse_open_ports(host, current)
        current = bring_into_pools(host, current)
        journal.run(starting(host), current, ServerJournal(host.records), host.watch)
    streams.check_runs(host, current)
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
    without any, it is powered off at once."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(*_STOPPED_WITHIN, "stop"))
        if current.operation and current.operation.verb in _STOPPED_WITHIN:
            host.records.put(keep_off(host, patience, tell, current))
        else:
            verb = stopping(host, patience=patience, tell=tell)
            journal.run(verb, without_operation(current), ServerJournal(host.records), host.watch)
    LOG.info("stopped server %s%s", server.name, "" if patience else " without asking its guest")


def reboot(host: Host, server: Server, *, patience: float, tell: Tell = noop) -> None:
    """Off, as stop() does it, and on again, with the domain as the record says."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        steps.check_networks(host, current.networks)
        steps.refuse_overlays(host, current)
        if details := try_plan(host, current, starts=True):
            try_to_move(Transit(host=host, details=details, patience=patience, tell=tell), current)
        else:
            verb = rebooting(host, patience=patience, tell=tell)
            journal.run(verb, current, ServerJournal(host.records), host.watch)
    LOG.info("rebooted server %s", server.name)


def restart(host: Host, server: Server, *, patience: float, tell: Tell = noop) -> None:
    """The guest restarts itself; its QEMU, and with it its definition of then, stays. Raises
    GuestStaysOn if it has not after ``patience`` seconds."""
    with host.records.lock(server):
        steps.load_idle(host, server)
        if (state := host.domains.state(server.id)) != "running":
            raise WrongState(server.name, state or "missing", "running")
        tell(f"waiting for the guest of {server.name} to restart, {patience:g} s at the most")
        if not restart_guest(host.libvirtd, server.id, patience):
            raise GuestStaysOn(server.name, f"its guest has not restarted within {patience:g} s")
    LOG.info("restarted the guest of server %s", server.name)


def starting(host: Host) -> Verb[Server]:
    """What the record speaks of is written into the domain: it may have changed manually."""
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
    stay_off = partial(keep_off, host, patience, tell)
    return Verb(
        "stop",
        (Step("stop", stay_off, partial(steps.sync_autostart, host)),),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is_off, host),
    )


def rebooting(host: Host, *, patience: float = 0, tell: Tell = noop) -> Verb[Server]:
    """Left at its first step, it goes on only if the guest has powered off meanwhile."""
    return Verb(
        "reboot",
        (
            Step("stop", as_step(partial(shut_down, host, patience, tell)), noop),
            Step("domain", partial(_define_if_off, host), noop),
            Step("start", partial(steps.power_on, host), partial(steps.sync_autostart, host)),
        ),
        finished=without_operation,
        undone=without_operation,
        arrived=partial(_is_off, host),
    )


def keep_off(host: Host, patience: float, tell: Tell, server: Server) -> Server:
    shut_down(host, patience, tell, server)
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


def runs_on(host: Host, server: Server, target: str, disk: Disk) -> bool:
    """Whether its guest has this disk there, so that somebody may use it already: it was started,
    or libvirt did that after a boot."""
    running = host.domains.description(server.id)
    return running is not None and running.id is not None and _has_disk(running, target, disk)


def starts_on(host: Host, server: Server, target: str, disk: Disk) -> bool:
    """Whether its guest would have this disk there, and may have had it."""
    defined = host.domains.description(server.id, defined=True)
    return defined is not None and _has_disk(defined, target, disk)


def _has_disk(domain: DomainXml, target: str, disk: Disk) -> bool:
    found = domain.disk(target)
    source = found.source if found else None
    place = (source.volume or source.name or source.file or source.device) if source else None
    return (place or "").endswith(disk.volume)
