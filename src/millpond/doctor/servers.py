"""Servers: none left in the middle of an operation, each with its domain and its disks."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from millpond.doctor.finding import Finding, ok, problem
from millpond.errors import Interrupted, PoolNotFound, Tool
from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.model.server import Content, Disk, Server
from millpond.servers import recover, steps


def interrupted(host: Host) -> Iterator[Finding]:
    """From the records alone: a host would be made with its pools."""
    left = [
        (server, operation)
        for server in host.records.all()
        if (operation := server.operation) and not host.records.is_worked_on(server)
    ]
    for server, operation in left:
        error = Interrupted(server.name, operation.verb, operation.step)
        yield problem(str(error), _advice(error), partial(_recover, host, server))
    if not left:
        yield ok("no server was left in the middle of an operation")


def _advice(error: Interrupted) -> str:
    """Say it plainly where a repair takes something away."""
    if error.verb == "create":
        return f"'{Tool.REPAIR}' undoes it: it removes the server with its disks, also if it runs"
    return error.advice


def domains(host: Host) -> Iterator[Finding]:
    missing = [
        server
        for server in host.records.all()
        if host.domains.state(server.id) is None and _is_settled(host, server)
    ]
    for server in missing:
        yield problem(
            f"server {server.name!r} has no domain on the host",
            f"'{Tool.REPAIR}' defines it again; then '{Tool.SERVER} start {server.name}'",
            partial(_define, host, server),
        )
    if not missing:
        yield ok("each server has its domain")


def disks(host: Host) -> Iterator[Finding]:
    found = [
        finding
        for server in host.records.all()
        for disk in server.disks
        if (finding := _disk(host, server, disk)) and _is_settled(host, server)
    ]
    yield from found or [ok("each server has its disks")]


def _disk(host: Host, server: Server, disk: Disk) -> Finding | None:
    """What is wrong with a disk; nothing, if it is there."""
    owner = f"disk {disk.role!r} of server {server.name!r}"
    if disk.path:
        return _of_nova(host, disk, owner)
    try:
        pool = host.pools.open(disk.pool)
    except PoolNotFound:
        return _of_a_missing_pool(host, disk, owner)
    if disk.content is Content.NVRAM or pool.find(disk.volume):  # made at the next start
        return None
    if host.seems_local and (Path(pool.path) / disk.volume).exists():
        return problem(
            f"libvirt does not see {disk.volume}, {owner}, which lies in {pool.path}",
            f"'virsh pool-refresh {pool.name}', or '{Tool.REPAIR}', lets it look again",
            partial(_refresh, pool),
        )
    return problem(
        f"{owner} is missing: there is no volume {disk.volume!r} in pool {disk.pool!r}, and "
        "what was on it is lost",
        f"restore the volume if there is a copy; else '{Tool.SERVER} delete {server.name}' "
        "removes what is left",
    )


def _of_nova(host: Host, disk: Disk, owner: str) -> Finding | None:
    """One in the legacy layout, with its base."""
    missing = ", ".join(str(path) for path in host.legacy_storage.missing(disk))
    if not missing:
        return None
    return problem(f"{owner} cannot be used: {missing} is missing", "restore it from a copy")


def _of_a_missing_pool(host: Host, disk: Disk, owner: str) -> Finding:
    what = f"{owner} is in pool {disk.pool!r}, which is not there"
    wanted = host.pool_plan.all().get(disk.pool)
    if wanted is None:
        return problem(what, "define the pool where it was, or move the volume into another one")
    return problem(
        what,
        f"'{Tool.REPAIR}' defines it at {wanted.location}, with what lies there",
        partial(_define_pool, host, disk.pool),
    )


def _is_settled(host: Host, server: Server) -> bool:
    """Asked after something was found missing: a server that is being made or deleted at this
    moment, or is gone by now, is not what we look for."""
    current = host.records.find(server.id)
    return bool(current and current.operation is None and not host.records.is_worked_on(current))


def _recover(host: Host, server: Server) -> str:
    return recover.recover(host, server)


def _define(host: Host, server: Server) -> str:
    with host.records.lock(server):
        steps.define(host, steps.load_idle(host, server))
    return "it was defined again"


def _refresh(pool: LibvirtPool) -> str:
    pool.refresh()
    return f"pool {pool.name} was refreshed"


def _define_pool(host: Host, name: str) -> str:
    return f"pool {host.pools.ensure(name).name} was defined"
