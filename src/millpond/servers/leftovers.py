"""What moves left on hosts that did not answer: noted in the server's record, and removed when
they do."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from millpond.errors import (
    Conflict,
    ConnectionLost,
    HostNotConfigured,
    HostUnreachable,
    NoConsole,
    NoSpace,
    NoSuchHost,
    Tool,
    VolumeNotFound,
)
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.libvirt.sharing import are_one
from millpond.model.server import Disk, Leftover, Server
from millpond.servers import steps

LOG = logging.getLogger(__name__)

UNREACHABLE = (HostUnreachable, ConnectionLost, HostNotConfigured, NoSuchHost)
"""A host that does not answer."""

UNKNOWN = (*UNREACHABLE, VolumeNotFound)
"""Of what is to be removed on one host nobody can say whether the server needs it: also where its
own disk is not found, because a file system is not mounted."""


def note(server: Server, host: str, disks: Iterable[Disk]) -> Server:
    others = (each for each in server.leftovers if each.host != host)
    return replace(server, leftovers=(*others, Leftover(host=host, disks=tuple(disks))))


def sweep(host: Host, server: Server, name: str = "") -> Server:
    """Remove them, or those on the host of this name; the record then, which has those that do not
    answer. Its lock is held, and nothing is under way."""
    left = [
        each
        for each in server.leftovers
        if (name and each.host != name) or not _is_removed(host, server, each)
    ]
    swept = replace(server, leftovers=tuple(left))
    if swept != server:
        host.records.put(swept)
    return swept


def _is_removed(host: Host, server: Server, leftover: Leftover) -> bool:
    assert isinstance(host.shared, Deployment)
    if leftover.host == server.host:  # it has come there since
        return True
    try:
        remove(host.shared.host(leftover.host), host.shared.host_of(server), server, leftover)
    except UNKNOWN as error:
        LOG.warning("what server %s left on host %s stays: %s", server.name, leftover.host, error)
        return False
    LOG.info("removed what server %s left on host %s", server.name, leftover.host)
    return True


def remove(there: Host, own: Host, server: Server, leftover: Leftover) -> None:
    """``own``: the host that the server is on."""
    refuse_running_copy(there, server, f"'{Tool.REPAIR}' powers it off")
    there.domains.undefine(server.id, keeps_variables=server.keeps_variables)
    steps.free_addresses(there, server.networks)
    if not _shares_console(own, there, server):
        there.consoles.remove(server.id)
    for disk in leftover.disks:
        if not is_one(own, server.find_disk(disk.role), there, disk):
            there.disks.delete(disk)


def refuse_running_copy(there: Host, server: Server, advised: str) -> None:
    """Somebody may have started by virsh what is left of it there."""
    state = there.domains.state(server.id)
    if state in ON:
        raise Conflict(
            f"server {server.name!r} is on host {server.host!r}, and the domain that it left on "
            f"host {there.name!r} is {state}",
            advised,
        )


def _shares_console(own: Host, there: Host, server: Server) -> bool:
    """Whether its guest prints to the log that was left: it may lie in a directory of both."""
    with suppress(NoConsole):
        left = there.consoles.read(server.id, server.name)
        return own.consoles.read(server.id, server.name).startswith(left)
    return False


def is_one(own: Host, disk: Disk | None, other: Host, copy: Disk) -> bool:
    """Whether what is a copy of the server's own disk by the record is that disk: nobody had
    proven that the hosts share the pool, and they do, or have come to. The pools show it by what
    is made in them. Full ones may by the file's time of change, which alone proves nothing: QEMU
    mirrors a write into two files at one moment. Raises what cannot be known, and VolumeNotFound
    where the copy may be all that there is."""
    if disk is None or disk.path or copy.path:  # a file in Nova's layout is no volume
        return False
    if disk.volume != copy.volume:  # in one pool: an overlay there, and all of it here
        return False
    pool, others = own.pools.ensure(disk.pool), other.pools.ensure(copy.pool)
    others.refresh()
    volume = others.find(copy.volume)
    if volume is None:
        return False
    if pool.find(disk.volume) is None:
        pool.refresh()  # UEFI variables are made without it
    known = pool.get(disk.volume)
    try:
        is_one = are_one(pool, others, copy.volume)
    except NoSpace:
        is_one = (known.changed, known.length) == (volume.changed, volume.length)
        if not is_one or not known.changed:
            raise
    if is_one:
        LOG.warning("disk %s stays: both hosts have the same pool after all", copy.role)
    return is_one
