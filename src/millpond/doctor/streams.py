"""Streams: no server reads from one whose template is whole, or waits for one."""

from collections.abc import Iterator
from functools import partial

from millpond.doctor.finding import Finding, problem
from millpond.errors import HostProblem, Tool
from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.servers import settle, streams
from millpond.servers.streams import Waiting


def waiting(host: Host) -> Iterator[Finding]:
    """What is whole by now is moved from the stream instead."""
    found = streams.find_waiting(host, host.records.all())
    for each in found.values():
        if settle.find_unsettled(host, each.server):
            continue
        yield problem(
            f"server {each.server.name!r} is paused: it waits for {each.what}",
            f"its guest goes on by itself when that is served again; '{Tool.REPAIR}' tries it now",
            partial(_resume, host, each),
        )


def _resume(host: Host, waiting: Waiting) -> str:
    if streams.resume(host, [waiting.server]):
        raise HostProblem(
            f"server {waiting.server.name!r} still waits for {waiting.what}",
            "see that the source of the image answers",
        )
    return f"{waiting.server.name} goes on"


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
