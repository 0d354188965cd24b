"""Streams: no server reads from one whose template is whole."""

from collections.abc import Iterator
from functools import partial

from millpond.doctor.finding import Finding, problem
from millpond.errors import Tool
from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.servers import settle


def unsettled(host: Host) -> Iterator[Finding]:
    for server in host.records.all():
        if server.operation or host.records.is_worked_on(server):
            continue
        if disks := settle.find_unsettled(host, server):
            roles = ", ".join(each.role for each in disks)
            yield problem(
                f"server {server.name!r} still reads what backs {roles} from a stream, and its "
                "template has arrived",
                f"'{Tool.REPAIR}' moves it onto the template while it runs; its next start does "
                "so, too",
                partial(_settle, host, server),
            )


def _settle(host: Host, server: Server) -> str:
    settle.settle(host, server)
    return f"{server.name} reads its template's own file"
