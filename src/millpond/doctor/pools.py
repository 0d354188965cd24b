"""The pools of the configuration: there, of the right type and place, running."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from millpond.doctor.finding import Finding, counted, ok, problem, warning
from millpond.errors import (
    HostProblem,
    PoolElsewhere,
    PoolInactive,
    PoolOfAnotherType,
    Tool,
)
from millpond.hosts.host import Host
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.libvirt.pools import PoolOverview, PoolWanted, overview, start_pool
from millpond.system.libvirtd import Libvirtd


def look(host: Host) -> Iterator[Finding]:
    for found in overview(host.libvirtd, host.pool_plan):
        wanted = host.pool_plan.find(found.name)
        assert wanted is not None  # an overview of the plan
        yield _finding(host, wanted, found)


def _finding(host: Host, wanted: PoolWanted, found: PoolOverview) -> Finding:
    libvirtd, name = host.libvirtd, found.name
    if found.state == "missing":
        return ok(
            f"{name} is not there yet: it is made at {wanted.location} when it is first needed"
        )
    if error := _difference(wanted, found):
        return problem(str(error), error.advice)
    if found.state == "inactive" and CAPABILITIES[wanted.type].remote:
        return ok(f"{name} is inactive: it is started when it is needed")
    if found.state == "inactive":
        inactive = PoolInactive(name)
        return problem(str(inactive), inactive.advice, partial(_start, host, found))
    if found.type == PoolType.DIR and host.seems_local and not Path(found.path).is_dir():
        return problem(
            f"storage pool {name!r} is active, but its directory {found.path} is missing",
            "mount it or restore it; an empty one (mkdir -m 0711) will do if nothing was in it",
        )
    if not _starts_by_itself(libvirtd, name):
        return warning(
            f"storage pool {name!r} will not start together with the host",
            f"'virsh pool-autostart {name}', or '{Tool.REPAIR}', sees to it",
            partial(_autostart, libvirtd, name),
        )
    return ok(f"{name} is active at {found.path} with {counted(found.volumes, 'volume')}")


def _difference(wanted: PoolWanted, found: PoolOverview) -> HostProblem | None:
    if found.type != wanted.type:
        return PoolOfAnotherType(wanted.name, found.type, wanted.type)
    if found.path != wanted.location:
        return PoolElsewhere(wanted.name, found.path, wanted.location)
    return None


def _starts_by_itself(host: Libvirtd, name: str) -> bool:
    with host.calling(f"looking at pool {name}") as connection:
        return bool(connection.storagePoolLookupByName(name).autostart())


def _start(host: Host, found: PoolOverview) -> str:
    """Killed right after it was defined, a pool has no directory yet. One that disks are in has
    lost it, and an empty one would only hide that."""
    never_used = found.type == PoolType.DIR and not _is_used(host, found.name)
    has_directory = host.seems_local and Path(found.path).exists()
    start_pool(host.libvirtd, found.name, build=never_used and not has_directory)
    return "it was started"


def _is_used(host: Host, pool: str) -> bool:
    return any(
        pool in (disk.pool, disk.template.pool if disk.template else "")
        for server in host.records.all()
        for disk in server.disks
    )


def _autostart(host: Libvirtd, name: str) -> str:
    with host.calling(f"setting autostart of pool {name}") as connection:
        connection.storagePoolLookupByName(name).setAutostart(True)
    return "now it will"
