"""What state a server is in, told from its record, its lock and its domain."""

from collections.abc import Mapping

from millpond.model.server import Server
from millpond.records.records import Records

_DOING = {"create": "creating", "delete": "deleting", "start": "starting", "reboot": "rebooting"}


def status(server: Server, records: Records, states: Mapping[str, str]) -> str:
    """``states`` are the host's domains', asked once for all servers."""
    operation = server.operation
    if operation and records.is_worked_on(server):
        return _DOING.get(operation.verb, operation.verb)
    if operation:
        return f"interrupted ({operation.verb}: {operation.step})"
    return states.get(server.id, "missing")
