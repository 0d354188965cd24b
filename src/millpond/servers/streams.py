"""Servers whose disks read what backs them from a stream: while nobody serves that, QEMU pauses
their guests, which see no error; they are resumed when somebody does again."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import Busy, Conflict, HostProblem, MillpondError, Tool
from millpond.hosts.host import Host
from millpond.model.names import ServerId
from millpond.model.server import Disk, Server
from millpond.servers.overlays import sources_of
from millpond.system.ports import is_served
from millpond.system.waiting import wait_until
from millpond.xml.domain import DiskXml

LOG = logging.getLogger(__name__)

_PATIENCE = 20.0
"""Seconds in which QEMU connects to a stream that is served again: it waits longer after each
attempt, up to 16 s. Whatever it reads before fails, and pauses the guest again."""
_NOTICED = 1.0
"""Seconds after which QEMU has read, and paused the guest again if it could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A server that does nothing until what it reads is served again."""

    server: Server
    disks: Sequence[Disk]
    sockets: Sequence[Path]
    """At which QEMU reads."""
    sources: Sequence[str]
    """Where the bytes of their templates come from."""

    @property
    def what(self) -> str:
        """For people."""
        come = f" from {', '.join(self.sources)}" if self.sources else ""
        return f"image {self.server.image.name}{come}"


def find_sockets(disk: DiskXml) -> list[Path]:
    """Of the streams that it reads."""
    sources = [each for each in sources_of(disk) if each and each.protocol == "nbd"]
    return [Path(at.socket) for each in sources for at in each.monitors if at.socket]


def find_streaming(host: Host, server: Server) -> list[Disk]:
    """Disks whose template its QEMU reads from a stream."""
    sockets = _find_sockets(host, server)
    return [each for each in server.disks if each.role in sockets]


def _find_sockets(host: Host, server: Server) -> Mapping[str, list[Path]]:
    """By the roles of the disks that its QEMU reads from a stream."""
    running = host.domains.description(server.id)
    if running is None or running.id is None:
        return {}
    disks = ((each, running.disk(each.target)) for each in server.disks if each.is_attached)
    return {each.role: at for each, found in disks if found and (at := find_sockets(found))}


def find_waiting(host: Host, servers: Iterable[Server]) -> Mapping[ServerId, Waiting]:
    """Those that QEMU has paused because it could not read from a stream. One that its user has
    paused does not wait, nor one whose pool is full."""
    found = {}
    for server in servers:
        if host.domains.state(server.id) == "paused" and host.domains.is_stuck(server.id):
            failing = host.domain_disks.failing(server.id)
            sockets = _find_sockets(host, server)
            disks = [
                each for each in server.disks if each.target in failing and each.role in sockets
            ]
            if disks:
                found[server.id] = Waiting(
                    server=server,
                    disks=disks,
                    sockets=[path for each in disks for path in sockets[each.role]],
                    sources=_find_sources(host, disks),
                )
    return found


def _find_sources(host: Host, disks: Iterable[Disk]) -> Sequence[str]:
    """As far as the templates are arriving still."""
    store = host.find_template_store()
    names = {each.template.volume for each in disks if each.template}
    templates = (store.find(each) for each in sorted(names)) if store else ()
    return [each.link.location for each in templates if each and each.link]


def refuse_waiting(host: Host, server: Server) -> None:
    """Before it is paused: libvirt does not tell who has done that of one that is paused."""
    if found := find_waiting(host, [server]).get(server.id):
        raise Conflict(
            f"server {server.name!r} is paused already: it waits for {found.what}",
            f"'{Tool.SERVER} stop {server.name}' keeps it from going on then",
        )


def resume_waiting(host: Host, template: str = "") -> Sequence[str]:
    """Of all servers of the host, or those on this template: each goes on if what it waits for is
    served, or can be served again. The names of those that wait still, or are worked on: to be
    called again."""
    return resume(host, [each for each in host.records.all() if _is_on(each, template)])


def resume(host: Host, servers: Iterable[Server]) -> Sequence[str]:
    """One that does not wait is no error."""
    waiting = dict(find_waiting(host, servers))
    told = {id: each.server for id, each in waiting.items()}
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        told = {id: each for id, each in told.items() if _try(host, each)}
        if not told:
            break
        still = _find_again(host, list(told.values()))
        for id in told.keys() - still.keys():
            LOG.info("server %s reads its stream again, and goes on", waiting.pop(id).server.name)
        told = {id: each.server for id, each in still.items()}
    return [each.server.name for each in waiting.values()]


def check_unpaused(host: Host, server: Server) -> None:
    """What its guest asked for may have failed while it was paused, and it meets that now. Raises
    HostProblem if it waits."""
    if find_streaming(host, server):
        _find_again(host, [server])
        check_runs(host, server)


def check_runs(host: Host, server: Server) -> None:
    """One that waits goes on. Raises HostProblem if it waits still."""
    found = find_waiting(host, [server]).get(server.id)
    if found and resume(host, [server]):
        raise HostProblem(
            f"server {server.name!r} is paused: it waits for {found.what}",
            f"it goes on when that can be read; '{Tool.DOCTOR}' says more",
        )


def _find_again(host: Host, servers: Sequence[Server]) -> Mapping[ServerId, Waiting]:
    """Of servers that were just told to go on."""
    found: Mapping[ServerId, Waiting] = {}

    def wait_all() -> bool:
        nonlocal found
        found = find_waiting(host, servers)
        return len(found) == len(servers)

    wait_until(wait_all, _NOTICED)
    return found


def _is_on(server: Server, template: str) -> bool:
    return any(each.template and template in ("", each.template.volume) for each in server.disks)


def _try(host: Host, server: Server) -> bool:
    """Whether its guest was told to go on."""
    try:
        with host.records.lock(server):
            current = host.records.find(server.id)
            found = find_waiting(host, [current] if current else []).get(server.id)
            if found and not _are_served(host, found):
                return False
            if found:
                host.domains.resume(server.id)
    except Busy as error:
        LOG.debug("server %s is not resumed: %s", server.name, error)
        return False
    except MillpondError as error:
        LOG.warning("server %s is still paused: %s", server.name, error)
        return False
    return True


def _are_served(host: Host, waiting: Waiting) -> bool:
    """Where nobody listens, the handler of the template may see to it that somebody does."""
    if not all(map(is_served, waiting.sockets)):
        for disk in waiting.disks:
            host.disks.chain(disk)
    return all(map(is_served, waiting.sockets))
