"""Bring the disks that Nova laid out into the pools: on demand, and before a server is started,
rebooted, resized or moved (B23)."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from millpond.errors import (
    GuestStaysOn,
    MillpondError,
    PoolBusy,
    Tool,
    Unsupported,
    WrongState,
)
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.callbacks import Progress, noop
from millpond.model.server import Server
from millpond.model.transition import TransitionDetails
from millpond.records import journal
from millpond.records.journal import Verb
from millpond.records.records import ServerJournal
from millpond.servers import steps
from millpond.servers.live_transition import LIVE_TRANSITION, live_transiting, plan_live
from millpond.servers.shutdown import Tell
from millpond.servers.transition_plan import (
    bytes_to_copy,
    has_legacy_disks,
    plan_revert,
    plan_transition,
)
from millpond.servers.transition_steps import TRANSITION, Transit, transiting

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitRequest:
    """What may become of one that runs; otherwise it is refused."""

    stop: bool = False
    """It is stopped, and started again."""
    live: bool = False
    """It runs on."""
    patience: float = 0
    """Seconds that its guest has to power itself off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    server: Server
    disks: int = 0
    copied: int = 0
    """Bytes."""
    pause: float = 0
    """Seconds that its guest waited, of one that ran on."""


def transit(
    host: Host,
    server: Server,
    request: TransitRequest,
    tell: Tell = noop,
    progress: Progress = noop,
) -> Moved:
    """What an earlier attempt left is finished or undone first."""
    with host.records.lock(server):
        current = _settle(host, steps.load_idle(host, server, but=(TRANSITION, LIVE_TRANSITION)))
        if not has_legacy_disks(current):
            return Moved(server=current)
        details = plan_for(host, current, request)
        size = bytes_to_copy(host, details)
        patience = request.patience
        todo = Transit(host=host, details=details, patience=patience, tell=tell, progress=progress)
        moved = move_disks(todo, current)
        pause = todo.pause[-1] - todo.pause[0] if todo.pause else 0
        return Moved(server=moved, disks=len(details.here), copied=size, pause=pause)


def give_back(host: Host, server: Server) -> Moved:
    """To Nova: its disks are where its driver finds them, and Millpond knows nothing of it any
    more. It is off."""
    with host.records.lock(server):
        current = steps.load_idle(host, server, but=(TRANSITION,))
        if current.operation and current.operation.step == "release":
            _settle(host, current)
            return Moved(server=current)
        current = _settle(host, current)
        if (state := host.domains.state(server.id)) in ON:
            raise WrongState(server.name, state or "", "stopped")
        details = plan_revert(host, current)
        size = bytes_to_copy(host, details)
        move_disks(Transit(host=host, details=details), current)
    LOG.info("gave server %s back to Nova", server.name)
    return Moved(server=current, disks=len(details.here), copied=size)


def plan_for(host: Host, server: Server, request: TransitRequest) -> TransitionDetails:
    runs = host.domains.state(server.id) in ON
    if runs and request.live:
        return plan_live(host, server)
    if runs and not request.stop:
        what = f"moving the disks of server {server.name!r} while it runs"
        raise Unsupported(what, "its guest writes to them", "add --live, or --stop")
    return plan_transition(host, server, starts=runs)


def transition_verb(transit: Transit) -> Verb[Server]:
    return live_transiting(transit) if transit.details.is_live else transiting(transit)


def _settle(host: Host, server: Server) -> Server:
    operation = server.operation
    if not operation or not isinstance(operation.details, TransitionDetails):
        return server
    verb = transition_verb(Transit(host=host, details=operation.details))
    notes = ServerJournal(host.records, operation.details)
    return journal.recover(verb, operation.step, server, notes, host.watch) or server


def bring_into_pools(host: Host, server: Server) -> Server:
    """Before it is started, resized or moved (B23), unless it runs. Its lock is held."""
    details = _plan_if_off(host, server)
    if details is None:
        return server
    return try_to_move(Transit(host=host, details=details), server)


def comes_into_pools(host: Host, server: Server) -> bool:
    """Whether bring_into_pools() would move disks."""
    return _plan_if_off(host, server) is not None


def _plan_if_off(host: Host, server: Server) -> TransitionDetails | None:
    return None if host.domains.state(server.id) in ON else try_plan(host, server)


def try_to_move(transit: Transit, server: Server) -> Server:
    """One that cannot be moved stays where it was, and runs again if it ran. Raises if its guest
    does not power off, or if what was begun cannot be undone."""
    host = transit.host
    try:
        moved = move_disks(transit, server)
    except GuestStaysOn:
        raise
    except MillpondError as error:
        left = host.records.find(server.id)
        if left is None or left.operation:
            raise
        return _stay(left, error)
    refresh_pools(host, [moved])
    return moved


def refresh_pools(host: Host, servers: Iterable[Server]) -> None:
    """libvirt knows the volumes that have come, but not what is in them: that costs a look at all
    that are in the pool. Nothing is wrong as long as it does not."""
    for name in {disk.pool for server in servers for disk in server.disks if disk.pool}:
        with suppress(PoolBusy):
            host.pools.ensure(name).refresh()


def refuse_legacy_root(server: Server) -> None:
    """For what would put another disk into its place."""
    if server.get_disk().path:
        advised = f"stop it first, or move it: '{Tool.TRANSITION} {server.name} --live'"
        what = f"replacing the root disk of server {server.name!r}"
        raise Unsupported(what, "it lies in Nova's legacy layout", advised)


def try_plan(host: Host, server: Server, *, starts: bool = False) -> TransitionDetails | None:
    """None where there is nothing to move. What cannot be stays where it is, and serves as
    before."""
    if not has_legacy_disks(server):
        return None
    try:
        return plan_transition(host, server, starts=starts)
    except MillpondError as error:
        _stay(server, error)
        return None


def _stay(server: Server, error: MillpondError) -> Server:
    LOG.warning("server %s stays in Nova's legacy layout: %s", server.name, error)
    return server


def move_disks(transit: Transit, server: Server) -> Server:
    """Its lock is held, and nothing is under way on it."""
    notes = ServerJournal(transit.host.records, transit.details)
    moved = journal.run(transition_verb(transit), server, notes, transit.host.watch)
    LOG.info("moved the disks of server %s", server.name)
    return moved
