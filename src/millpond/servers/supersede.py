"""What was under way on a server when its host died: evacuation takes its place where it has
changed no disk (docs/decisions/0031)."""

from dataclasses import replace

from millpond.errors import LeftUnfinished
from millpond.hosts.host import Host
from millpond.model.move import MigrateDetails
from millpond.model.server import Server
from millpond.records.records import without_operation
from millpond.servers.evacuate_steps import EVACUATE
from millpond.servers.live_steps import LIVE_MIGRATE
from millpond.servers.move_steps import MIGRATE, Move, release_claim, revert_claim

_SHOULD_RUN = {"start": True, "reboot": True, "stop": False}
"""Afterwards: its guest is off, so each of them would be finished."""
_PAUSES = ("pause", "unpause")
_BEFORE = {MIGRATE: ("claim", "template", "stop"), LIVE_MIGRATE: ("claim", "template")}
"""Steps of a move from the dead host that come before its disks are copied."""
_AFTER = ("release", "start")
"""Steps of one to the dead host, when nothing is copied or removed any more."""


def supersede(server: Server) -> Server:
    """The server as if nothing were under way. Nothing is written down or changed. Raises
    LeftUnfinished."""
    operation = server.operation
    if operation is None:
        return server
    idle = without_operation(server)
    verb, step, details = operation.verb, operation.step, operation.details
    if verb in _PAUSES:
        return idle
    if verb in _SHOULD_RUN:
        return replace(idle, should_run=_SHOULD_RUN[verb])
    if isinstance(details, MigrateDetails) and _is_harmless(server, verb, step, details):
        return replace(idle, should_run=server.should_run or details.starts)
    raise LeftUnfinished(server.name, server.host, verb, step)


def _is_harmless(server: Server, verb: str, step: str, details: MigrateDetails) -> bool:
    if server.host == details.source:
        return step in _BEFORE.get(verb, ())
    return verb in (MIGRATE, LIVE_MIGRATE, EVACUATE) and step in _AFTER


def end_claim(host: Host, server: Server) -> None:
    """What Placement counts for the move that is superseded. It may be called again."""
    details = server.operation.details if server.operation else None
    if isinstance(details, MigrateDetails):
        move = Move(host=host, details=details)
        (revert_claim if server.host == details.source else release_claim)(move, server)
