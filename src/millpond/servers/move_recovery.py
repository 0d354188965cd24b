"""A move that was interrupted, cold, live or from a dead host: finished or undone."""

from contextlib import suppress

from millpond.errors import MillpondError
from millpond.hosts.host import Host
from millpond.model.move import MigrateDetails
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Verb
from millpond.records.records import Records, ServerJournal
from millpond.servers.evacuate_steps import EVACUATE, evacuating
from millpond.servers.leftovers import UNREACHABLE
from millpond.servers.live_steps import (
    ARRIVING,
    LIVE_MIGRATE,
    LiveMove,
    has_arrived,
    live_migrating,
)
from millpond.servers.move_steps import Move, migrating


def moving(host: Host, verb: str, details: MigrateDetails) -> Verb[Server]:
    if verb == LIVE_MIGRATE:
        return live_migrating(LiveMove(host=host, details=details))
    if verb == EVACUATE:
        return evacuating(Move(host=host, details=details))
    return migrating(Move(host=host, details=details))


def settle(host: Host, server: Server) -> Server:
    """The record then. Its lock is held."""
    operation = server.operation
    if not operation or not isinstance(operation.details, MigrateDetails):
        return server
    verb = moving(host, operation.verb, operation.details)
    notes = ServerJournal(host.records, operation.details)
    return journal.recover(verb, operation.step, server, notes, host.watch) or server


def find_arrived(host: Host, server: Server) -> str:
    """Where the guest of an interrupted live migration runs although the record does not name that
    host yet. Empty: it has not left, or nobody knows."""
    operation = server.operation
    if not operation or operation.verb != LIVE_MIGRATE or operation.step not in ARRIVING:
        return ""
    assert isinstance(operation.details, MigrateDetails)
    with suppress(*UNREACHABLE):
        if has_arrived(LiveMove(host=host, details=operation.details), server):
            return operation.details.destination
    return ""


def find_now(records: Records, server: Server) -> Server:
    """As it is after its move has failed: it may have come to another host all the same."""
    with suppress(MillpondError):  # that error was told already
        return records.find(server.id) or server
    return server
