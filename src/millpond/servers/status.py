"""What state a server is in, told from its record, its lock and its domain."""

from collections.abc import Mapping, Sequence

from millpond.libvirt.domains import Domains
from millpond.model.server import Server
from millpond.records.records import Records

_DOING = {"create": "creating", "delete": "deleting", "start": "starting", "reboot": "rebooting"}


def statuses(servers: Sequence[Server], records: Records, domains: Domains) -> Mapping[str, str]:
    """The state of each server by its id. Of one in the middle of an operation the record tells,
    and its domain, which may be locked, is not asked."""
    idle = [server.id for server in servers if not server.operation]
    states = domains.states(idle) if idle else {}
    return {
        server.id: _underway(server, records) or states.get(server.id, "missing")
        for server in servers
    }


def _underway(server: Server, records: Records) -> str | None:
    operation = server.operation
    if operation is None:
        return None
    if records.is_worked_on(server):
        return _DOING.get(operation.verb, operation.verb)
    return f"interrupted ({operation.verb}: {operation.step})"
