"""Move everything away from a host."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millpond.errors import (
    ConnectionLost,
    HostProblem,
    HostUnreachable,
    MillpondError,
    Tool,
)
from millpond.hosts.availability import check_choice, disable
from millpond.hosts.deployment import Deployment
from millpond.libvirt.migration import LiveOptions
from millpond.model.server import Server
from millpond.servers.migrate import (
    Migrated,
    MigrateRequest,
    MoveDecision,
    decide,
    find_begun,
    migrate,
)
from millpond.servers.move_recovery import find_now
from millpond.system.threads import each_of

_AT_ONCE = 2
"""Their bytes go through one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMoved:
    server: Server
    """As it is now: it may have come to another host."""
    error: MillpondError


def drain(
    deployment: Deployment, name: str, request: Callable[[Server], MigrateRequest]
) -> Iterator[Migrated | NotMoved]:
    """First it gets no new servers; then each is tried, whatever becomes of the rest, and told as
    it ends. Interrupted, those that are being moved are finished, and no more begun; done again,
    it goes on."""
    _refuse_silent(deployment, name)
    disable(deployment, name, "drained")

    def attempt(server: Server) -> Migrated | NotMoved:
        try:
            asked = _choose_way(deployment, server, request(server))
            return migrate(deployment, server, asked)
        except MillpondError as error:
            return NotMoved(server=find_now(deployment.records, server), error=error)

    yield from each_of(_servers_of(deployment, name), attempt, _AT_ONCE)


def plan_drain(
    deployment: Deployment, name: str, request: MigrateRequest
) -> Iterator[tuple[Server, MoveDecision | NotMoved]]:
    """Where each would go. Nothing is changed, and no room is taken: together they may not fit."""
    _refuse_silent(deployment, name)
    for each in _servers_of(deployment, name):
        try:
            found = decide(deployment, each, _choose_way(deployment, each, request))
            if found.plan is None:
                raise found.decision.no_valid_host()
            yield each, found
        except MillpondError as error:
            yield each, NotMoved(server=each, error=error)


def _choose_way(deployment: Deployment, server: Server, request: MigrateRequest) -> MigrateRequest:
    """One that runs is moved while it does, unless it may be stopped."""
    runs = deployment.host_of(server).domains.state(server.id) == "running"
    return replace(request, live=LiveOptions()) if runs and not request.stop else request


def _refuse_silent(deployment: Deployment, name: str) -> None:
    check_choice(deployment, name)
    try:
        deployment.hosts[name].libvirtd.versions()
    except (HostUnreachable, ConnectionLost) as error:
        advised = f"if it is dead, '{Tool.SERVER} evacuate --all --from {name}' saves its servers"
        raise HostProblem(f"host {name!r} does not answer: {error}", advised) from error


def _servers_of(deployment: Deployment, name: str) -> list[Server]:
    """With those that an interrupted move has taken from it."""
    servers, _ = deployment.records.readable()
    return [
        each
        for each in servers
        if each.host == name or ((begun := find_begun(each)) and begun.source == name)
    ]
