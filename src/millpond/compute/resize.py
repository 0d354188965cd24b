"""Make a server's disk larger, while it is off or while it runs; never smaller."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from millpond.compute.domain_xml import record_xml
from millpond.compute.host import Host
from millpond.compute.power import ON, unoccupied
from millpond.errors import DiskNotFound, Unsupported
from millpond.model.server import Content, Disk, Server
from millpond.model.sizes import format_size
from millpond.records import journal
from millpond.records.journal import Step, Verb, nothing
from millpond.records.records import ServerJournal, settled

LOG = logging.getLogger(__name__)


def grow(host: Host, server: Server, role: str, size: int) -> Server:
    with host.records.lock(server):
        current = unoccupied(host, server)
        _refuse(disk_of(current, role), size)
        details = {"role": role, "size": str(size)}
        notes = ServerJournal(host.records, details)
        grown = journal.run(growing(host, details), current, notes, host.watch)
    LOG.info("grew %s of server %s to %s", role, server.name, format_size(size))
    return grown


def growing(host: Host, details: Mapping[str, str]) -> Verb[Server]:
    """Begun, it goes forward: a disk that has grown cannot be made small again."""
    steps = (
        Step("extend", partial(_extend, host, details), nothing),  # it grows or it does not
        Step("tell", partial(_tell, host, details), nothing),
        Step("record", partial(_mark, host)),
    )
    return Verb("grow", steps, finished=settled, undone=settled, resumes=True)


def disk_of(server: Server, role: str) -> Disk:
    if found := server.disk(role):
        return found
    raise DiskNotFound(server.name, role, tuple(each.role for each in server.disks))


def _refuse(disk: Disk, size: int) -> None:
    what = f"making {disk.role} {format_size(size)} large"
    if size < disk.size:
        reason = f"it has {format_size(disk.size)}, and what lies behind would be lost"
        raise Unsupported(what, reason, "a disk only grows")
    if disk.content is Content.CONFIG:
        raise Unsupported(what, "it is the config drive", "make a data disk instead")


def _extend(host: Host, details: Mapping[str, str], server: Server) -> Server:
    """What lies below. Of a running server only what QEMU does not grow itself."""
    disk, size = disk_of(server, details["role"]), int(details["size"])
    backend = host.storage_of(disk)
    if host.domains.state(server.id) in ON and not backend.grows_beneath(disk):
        return server
    return _with_size(server, disk, backend.grow(disk, size))


def _tell(host: Host, details: Mapping[str, str], server: Server) -> Server:
    """A step of its own: once the guest knows, nothing is wiped behind the old end any more."""
    disk = disk_of(server, details["role"])
    if host.domains.state(server.id) not in ON:
        return server
    size = max(disk.size, int(details["size"]))
    host.domains.resize_disk(server.id, disk.target, size)
    return _with_size(server, disk, size)


def _with_size(server: Server, disk: Disk, size: int) -> Server:
    disks = (replace(each, size=size) if each is disk else each for each in server.disks)
    return replace(server, disks=tuple(disks))


def _mark(host: Host, server: Server) -> Server:
    """The copy of the record in the domain follows."""
    if host.domains.state(server.id):
        host.domains.mark(server.id, record_xml(settled(server), host.records.owner))
    return server
