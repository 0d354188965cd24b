"""Delete a server: begun, it only rolls forward."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from millpond.errors import HostProblem, MillpondError, NoSuchHost, PoolNotFound, ToolFailed
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.callbacks import noop
from millpond.model.move import MigrateDetails
from millpond.model.operation import DeleteDetails
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.scheduling.claims import Claims
from millpond.servers import leftovers, steps
from millpond.servers.move_recovery import settle
from millpond.servers.overlays import remove_overlay

LOG = logging.getLogger(__name__)

Act = Callable[[Host, Server], None]

UNREACHABLE = (PoolNotFound, HostProblem, ToolFailed, NoSuchHost)


def delete(host: Host, server: Server, *, force: bool = False) -> None:
    """Whatever state it is in: also one that was left in the middle of something. With ``force``
    a disk that cannot be reached stays behind, and a move that can be neither finished nor undone
    is ended by removing what it has at either host."""
    with host.records.lock(server):
        current = host.records.find(server.id)
        if current is None:
            return
        current = _end_move(host, current, force=force)
        if current.host != host.name and isinstance(host.shared, Deployment):  # it has arrived
            host = host.shared.host_of(current)
        if current.leftovers and not current.operation:
            current = leftovers.sweep(host, current)
        if not force:
            _look_at_the_disks(host, current)
        details = DeleteDetails(force=force, overlays=current.overlays)
        notes = ServerJournal(host.records, details, insists=False)
        journal.run(deletion(host, details), current, notes, host.watch)
    LOG.info("deleted server %s (%s)", server.name, server.id)


def _end_move(host: Host, server: Server, *, force: bool) -> Server:
    """The record then, which may name another host."""
    try:
        return settle(host, server)
    except MillpondError as error:
        if not force:
            raise
        LOG.warning("the move of server %s is given up: %s", server.name, error)
    current = host.shared.records.find(server.id) or server
    if details := _find_move(current):
        _remove_other_end(host, details, current)
    release_move(host.claims, current)
    return current


def release_move(claims: Claims | None, server: Server) -> None:
    """What Placement counts for a move that nobody ends any more."""
    if claims and (details := _find_move(server)):
        with steps.log_placement_errors(server):
            claims.confirm_move(details.migration)


def _find_move(server: Server) -> MigrateDetails | None:
    details = server.operation.details if server.operation else None
    return details if isinstance(details, MigrateDetails) else None


def _remove_other_end(host: Host, details: MigrateDetails, server: Server) -> None:
    """Whatever is there: the server is to be gone from both hosts."""
    assert isinstance(host.shared, Deployment)
    name, disks = details.source, details.here
    if server.host == details.source:
        name, disks = details.destination, details.there
    with _leaving(f"what server {server.name} has on host {name}", force=True):
        other = host.shared.host(name)
        steps.power_off(other, server)
        steps.undefine(other, server)
        for disk in disks:
            if details.travels(disk):
                other.disks.delete(disk)


def _look_at_the_disks(host: Host, server: Server) -> None:
    """A pool that cannot be used is an error before anything is changed."""
    for disk in server.disks:
        host.disks.exists(disk)
    for overlay in server.overlays.values():
        host.pools.ensure(overlay.pool)


def _delete_disks(details: DeleteDetails, host: Host, server: Server) -> None:
    """With what an interrupted snapshot left above them."""
    for disk in server.disks:
        with _leaving(disk.location, force=details.force):
            host.disks.delete(disk)
    for overlay in details.overlays.values():
        with _leaving(f"{overlay.pool}/{overlay.volume}", force=details.force):
            remove_overlay(host, overlay)


def _release(details: DeleteDetails, host: Host, server: Server) -> None:
    with steps.log_placement_errors(server) if details.force else nullcontext():
        steps.release(host, server)


@contextmanager
def _leaving(what: str, *, force: bool) -> Iterator[None]:
    try:
        yield
    except UNREACHABLE as error:
        if not force:
            raise
        LOG.warning("%s stays behind: %s", what, error)


def deletion(host: Host, details: DeleteDetails) -> Verb[Server]:
    def step(name: str, act: Act) -> Step[Server]:
        return Step(name, as_step(partial(act, host)))

    return Verb(
        "delete",
        (
            step("stop", steps.power_off),
            step("domain", steps.undefine),
            step("disks", partial(_delete_disks, details)),
            step("release", partial(_release, details)),
        ),
        finished=noop,
        undone=without_operation,
        resumes=True,
    )
