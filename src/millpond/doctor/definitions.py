"""Domains: what the record of a server speaks of is as it says."""

import logging
from collections.abc import Iterator

from millpond.doctor.finding import Finding, ok, problem, warning
from millpond.errors import DiskOverlaid, MillpondError, Tool
from millpond.hosts.host import Host
from millpond.libvirt.domains import compare
from millpond.model.server import Server
from millpond.servers import steps
from millpond.xml.keeping import Kept

LOG = logging.getLogger(__name__)


def look(host: Host) -> Iterator[Finding]:
    found = [
        finding
        for server in host.records.all()
        if not server.operation and not host.records.is_worked_on(server)
        for finding in _look_at(host, server)
    ]
    yield from found or [ok("each domain is as recorded in what the records speak of")]


def _look_at(host: Host, server: Server) -> Iterator[Finding]:
    try:
        steps.refuse_overlays(host, server)
        kept = _compare(host, server)
    except DiskOverlaid as error:
        yield problem(str(error), error.advice)
        return
    except MillpondError as error:  # disks that are not found are another check's
        LOG.debug("server %s is not compared: %s", server.name, error)
        return
    if kept and kept.lost:
        yield warning(
            f"server {server.name!r} was changed manually in what its record speaks of: "
            f"{'; '.join(kept.lost)}",
            f"at its next start it is again as '{Tool.SERVER} show {server.name}' says",
        )


def _compare(host: Host, server: Server) -> Kept | None:
    return compare(host.libvirtd, steps.describe(host, server))
