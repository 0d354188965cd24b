"""Make a server's disk larger, while it is off or while it runs; never smaller."""

import logging
from dataclasses import replace
from functools import partial

from millpond.disks.grow_strategies import GrowStrategy
from millpond.errors import Tool, Unsupported
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.operation import GrowDetails, GrowMethod
from millpond.model.server import Content, Disk, Server
from millpond.model.sizes import check_disk_size, format_size, whole_sectors
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.own_disks import get_own_disk
from millpond.servers.transition import bring_into_pools

LOG = logging.getLogger(__name__)

_ONLY_READ = {Content.CONFIG: "config drive", Content.CDROM: "CD-ROM"}


def grow(host: Host, server: Server, role: str, size: int) -> Server:
    size = whole_sectors(size)
    with host.records.lock(server):
        current, method = check_grow(host, steps.load_idle(host, server), role, size)
        if (moved := bring_into_pools(host, current)) is not current:
            current, method = check_grow(host, moved, role, size)
        role = current.get_disk(role).role
        details = GrowDetails(role=role, size=size, method=method)
        notes = ServerJournal(host.records, details)
        grown = journal.run(growing(host, details), current, notes, host.watch)
    LOG.info("grew %s of server %s to %s", role, server.name, format_size(size))
    return grown


def check_grow(host: Host, server: Server, name: str, size: int) -> tuple[Server, GrowMethod]:
    """The server with the disk's true size, and how it would grow. Raises what makes it
    impossible; changes nothing."""
    role = get_own_disk(server, name).role
    strategy = host.disks.grow_strategy(server.get_disk(role))
    current = _with_true_size(host, server, role, strategy)
    disk = current.get_disk(role)
    _refuse(disk, size)
    _refuse_running(host, current, disk, strategy.method)
    return current, strategy.method


def growing(host: Host, details: GrowDetails) -> Verb[Server]:
    """Begun, it rolls forward: a disk that has grown cannot be made small again."""
    stays = None if details.method.only_forward else partial(_refuse_grown, host, details)
    taken = (
        Step("claim", as_step(partial(_claim, host, details)), partial(steps.unclaim, host)),
        Step("copy", as_step(partial(_copy, host, details)), partial(_abandon, host, details)),
        Step("extend", partial(_extend, host, details), stays),
        Step("tell", partial(_tell, host, details), stays),
        Step("record", partial(_write_metadata, host)),
    )
    return Verb("grow", taken, finished=without_operation, undone=without_operation, resumes=True)


def _with_true_size(host: Host, server: Server, role: str, strategy: GrowStrategy) -> Server:
    """A disk may have grown without us, or while we were interrupted: nothing is cut off then, and
    nothing wiped."""
    disk = server.get_disk(role)
    runs = strategy.method is GrowMethod.RESIZE and _is_live(host, server, disk)
    size = host.block_jobs.size(server.id, disk.target) if runs else strategy.size()
    return _with_size(server, disk, max(disk.size, size))


def _is_live(host: Host, server: Server, disk: Disk) -> bool:
    """Whether a guest has it now."""
    return disk.is_attached and host.domains.state(server.id) in ON


def _refuse(disk: Disk, size: int) -> None:
    check_disk_size(size)
    what = f"making {disk.role} {format_size(size)} large"
    if not disk.content.is_seen_by_the_guest:
        reason = "it is a file that the guest is started with, and no disk"
        raise Unsupported(what, reason, "make a data disk instead")
    if only_read := _ONLY_READ.get(disk.content):
        raise Unsupported(what, f"it is the {only_read}", "make a data disk instead")
    if size < disk.size:
        reason = f"it has {format_size(disk.size)}, and what lies behind would be lost"
        raise Unsupported(what, reason, "a disk only grows")


def _refuse_running(host: Host, server: Server, disk: Disk, method: GrowMethod) -> None:
    if method.only_off and _is_live(host, server, disk):
        raise Unsupported(
            f"growing {disk.role} while the server runs",
            f"a {disk.format} disk in pool {disk.pool} is copied to become larger",
            f"stop the server first: {Tool.SERVER} stop {server.name}",
        )


def _grow_strategy(host: Host, details: GrowDetails, server: Server) -> GrowStrategy:
    return host.disks.grow_strategy(server.get_disk(details.role), details.method)


def _claim(host: Host, details: GrowDetails, server: Server) -> None:
    disk = server.get_disk(details.role)
    steps.claim(host, _with_size(server, disk, max(disk.size, details.size)))


def _copy(host: Host, details: GrowDetails, server: Server) -> None:
    """Only for a disk that cannot grow where it is. Asked again whether the server runs: who
    resumes comes later, and somebody may have started its domain."""
    _refuse_running(host, server, server.get_disk(details.role), details.method)
    _grow_strategy(host, details, server).begin(details.size)


def _abandon(host: Host, details: GrowDetails, server: Server) -> None:
    _grow_strategy(host, details, server).abandon()


def _refuse_grown(host: Host, details: GrowDetails, server: Server) -> None:
    """As an undo: one that has grown already is finished by whoever comes next."""
    strategy, size = _grow_strategy(host, details, server), details.size
    grown = _with_true_size(host, server, details.role, strategy).get_disk(details.role)
    if grown.size >= size:
        what = f"making {grown.role} smaller than {format_size(size)}"
        raise Unsupported(what, "it has grown already", f"'{Tool.REPAIR}' finishes it")


def _extend(host: Host, details: GrowDetails, server: Server) -> Server:
    """What lies below. Of a running server only what QEMU does not grow itself."""
    disk, method = server.get_disk(details.role), details.method
    _refuse_running(host, server, disk, method)
    if method is GrowMethod.RESIZE and _is_live(host, server, disk):
        return server
    return _with_size(server, disk, _grow_strategy(host, details, server).finish(details.size))


def _tell(host: Host, details: GrowDetails, server: Server) -> Server:
    """A step of its own: once the guest knows, nothing is wiped behind the old end any more. One
    that went off in the meantime is not told, and its disk is grown like any other."""
    disk, method = server.get_disk(details.role), details.method
    size = max(disk.size, details.size)
    if not _is_live(host, server, disk):
        if disk.size == size or method is not GrowMethod.RESIZE:
            return server
        return _with_size(server, disk, _grow_strategy(host, details, server).finish(size))
    if method is not GrowMethod.RESIZE or host.block_jobs.size(server.id, disk.target) < size:
        host.domain_disks.resize(server.id, disk.target, size)
    return _with_size(server, disk, max(size, host.block_jobs.size(server.id, disk.target)))


def _with_size(server: Server, disk: Disk, size: int) -> Server:
    disks = (replace(each, size=size) if each is disk else each for each in server.disks)
    return replace(server, disks=tuple(disks))


def _write_metadata(host: Host, server: Server) -> Server:
    """The copy of the record in the domain follows."""
    if host.domains.state(server.id):
        steps.write_metadata(host, without_operation(server))
    return server
