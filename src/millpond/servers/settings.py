"""Change what is recorded of a server: its record first, and then its domain, which follows."""

import logging
from dataclasses import dataclass, replace

from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.servers import steps

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """None: it stays."""

    autostart: bool | None = None


def change(host: Host, server: Server, changes: Changes) -> Server:
    """Ended between the two, the domain follows at the next start; its autostart by doctor."""
    with host.records.lock(server):
        changed = _apply(changes, steps.load_idle(host, server))
        host.records.put(changed)
        steps.write_metadata(host, changed)
        steps.sync_autostart(host, changed)
    LOG.info("changed server %s", server.name)
    return changed


def _apply(changes: Changes, server: Server) -> Server:
    if changes.autostart is None:
        return server
    return replace(server, autostart=changes.autostart)
