"""What millpond-nova-doctor looks at: the host as ever, and what Nova knows of its instances."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from nova import context
from nova.compute import vm_states
from nova.objects.instance import Instance, InstanceList
from oslo_messaging import MessagingException

from millpond.doctor import checks
from millpond.doctor.checks import Check
from millpond.doctor.finding import Finding, counted, ok, problem, some, warning
from millpond.errors import Busy, Tool
from millpond.hosts.capabilities import volume_owners
from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.model.names import ServerId, split_volume_name
from millpond.nova.peers import is_proven_apart
from millpond.nova.records import InstanceRecords
from millpond.nova.recovery import SNAPSHOT, advice, pools_of_disks, remove, remove_unfinished
from millpond.nova.transition import describe, find_all

_LEGACY = f"'{Tool.LEGACY}' shows them; a hard reboot or a start moves them into the pools"
_HOST = {check.name: check for check in checks.CHECKS}


def nova(host: Host) -> Iterator[Finding]:
    try:
        servers, damaged = host.records.readable()
    except MessagingException as error:
        yield problem(f"Nova does not answer: {error}", "see whether nova-conductor runs")
        return
    for each in damaged:
        yield problem(str(each), "correct it in the system_metadata of the instance, or delete it")
    if not damaged:
        yield ok(f"Nova has {counted(len(servers), 'server')} on this host")


def unfinished(host: Host) -> Iterator[Finding]:
    left = [(each, roles) for each in _instances(host) if (roles := _unfinished(each))]
    for instance, roles in left:
        what = f"{_describe(instance)} has disks that were begun and never finished: {some(roles)}"
        if instance.task_state:
            yield warning(
                f"{what}; it is at the step {instance.task_state!r}",
                "wait; if nova-compute was killed there, start it, and it puts this right",
            )
        else:
            do = f"'{Tool.REPAIR}' removes them; then {advice(instance)}"
            yield problem(what, do, partial(_remove_unfinished, host, instance.uuid))
    if not left:
        yield ok("no server has an unfinished disk")


def domains(host: Host) -> Iterator[Finding]:
    left = [
        each
        for each in _instances(host)
        if each.vm_state == vm_states.ERROR
        and not each.task_state
        and InstanceRecords(each).all()
        and host.domains.state(ServerId(each.uuid)) is None
    ]
    for instance in left:
        yield warning(
            f"{_describe(instance)} is in ERROR and has disks, but no domain",
            advice(instance),
        )
    if not left:
        yield ok("no server in ERROR has lost its domain")


def legacy(host: Host) -> Iterator[Finding]:
    """Whose disks Nova's own driver made, and what was left between its layout and the pools."""
    found = find_all(host, _instances(host))
    begun = [describe(each.instance) for each in found if each.begun]
    if begun:
        yield problem(
            f"{counted(len(begun), 'server')} left in the middle of a transition: {some(begun)}",
            "'millpond-nova-transition run' with their ids ends it, if they are off",
        )
    names = [describe(each.instance) for each in found if not each.begun]
    what = f"{counted(len(names), 'server')} with disks that Nova's own driver made: {some(names)}"
    if names and host.settings.libvirt.selection.images_type.pools_only:
        yield problem(f"images_type = libvirt-storage, but there are {what}", _LEGACY)
    elif names:
        yield warning(what, _LEGACY)
    elif not begun:
        yield ok("no server has disks that Nova's own driver made")


def copies(host: Host) -> Iterator[Finding]:
    left = [
        (server, found)
        for server in host.records.all()
        if server.disks and not (server.operation and server.operation.verb in SNAPSHOT)
        if (found := host.imaging.find_copied(server.id, server.disks))
    ]
    for server, disks in left:
        yield problem(
            f"disks of server {server.name!r} are being copied, and nobody makes an image of it: "
            f"{some([disk.role for disk in disks])}",
            f"'{Tool.REPAIR}' ends that; the server runs on",
            partial(_end_copies, host, server.id),
        )
    if not left:
        yield ok("no copy of a disk was left under way")


def volumes(host: Host) -> Iterator[Finding]:
    found = [finding for pool in pools_of_disks(host) for finding in _strays(host, pool)]
    yield from found or [ok("the pools hold nothing but disks of this host's servers")]


CHECKS = (
    _HOST["libvirt"],
    _HOST["versions"],
    _HOST["apparmor"],
    _HOST["space"],
    _HOST["confinement"],
    Check(name="records", looks=(nova,), lack="Nova's records cannot be read"),
    *(_HOST[name] for name in ("pools", "permissions", "templates")),
    Check(name="operations", looks=(unfinished, copies), needs=("versions", "records", "pools")),
    Check(name="domains", looks=(domains,), needs=("versions", "records")),
    Check(name="legacy", looks=(legacy,), needs=("versions", "records", "pools")),
    _HOST["disks"],
    Check(name="volumes", looks=(volumes,), needs=("records", "pools")),
)


def _instances(host: Host) -> Any:
    admin = context.get_admin_context()
    return InstanceList.get_by_host(admin, host.records.owner, expected_attrs=["system_metadata"])


def _unfinished(instance: Any) -> list[str]:
    return [each.disk.role for each in InstanceRecords(instance).all() if not each.made]


def _describe(instance: Any) -> str:
    return f"server {instance.display_name or instance.uuid!r} ({instance.uuid})"


def _remove_unfinished(host: Host, id: str) -> str:
    """By what is true now, and while nobody makes a disk of it."""
    with host.disks.lock(ServerId(id), wait=False):
        records = InstanceRecords(_load_idle(id), only_settled=True)
        removed = remove_unfinished(host.disks, records)
    return f"{counted(len(removed), 'disk')} removed"


def _end_copies(host: Host, id: ServerId) -> str:
    disks = [each.disk for each in InstanceRecords(_load_idle(id)).all()]
    host.imaging.stop(id, disks)
    return "it was ended"


def _load_idle(id: str) -> Any:
    """An instance that Nova does nothing with at this moment."""
    admin = context.get_admin_context()
    instance = Instance.get_by_uuid(admin, id, expected_attrs=["system_metadata"])
    if instance.task_state:
        raise Busy(_describe(instance))
    return instance


def _strays(host: Host, pool: LibvirtPool) -> Iterator[Finding]:
    """What no record of this host's servers names. A pool that other hosts share has theirs."""
    listed = [volume.name for volume in pool.volumes()]
    owners = volume_owners(host, pool)  # after the listing: a record is older than its volume
    strays = [each for each in listed if each not in owners and pool.find(each)]
    instances = _ever_known({disk[0] for each in strays if (disk := split_volume_name(each))})
    for volume in strays:
        disk = split_volume_name(volume)
        instance = instances.get(disk[0]) if disk else None
        if instance and instance.deleted:
            yield _of_a_deleted(host, instance, pool, volume)
        elif instance and _has_left(host, instance, pool):
            what = f"volume {volume} in pool {pool.name!r} was left by a move of "
            what += f"{_describe(instance)}, which is on host {instance.host!r}"
            repair = partial(_remove_left, host, instance.uuid, pool, volume)
            yield problem(what, f"'{Tool.REPAIR}' removes it", repair)
        elif not pool.capabilities.remote:
            yield _describe_unknown(instance, pool.name, volume)


def _has_left(host: Host, instance: Any, pool: LibvirtPool) -> bool:
    """Whether it lives elsewhere, with disks that are certainly others."""
    here = host.records.owner
    return bool(
        instance.host not in (None, here)
        and not instance.task_state
        and instance.vm_state != vm_states.RESIZED
        and host.domains.state(ServerId(instance.uuid)) is None
        and is_proven_apart(host, instance.host, pool.name, instance.uuid)
    )


def _remove_left(host: Host, id: str, pool: LibvirtPool, volume: str) -> str:
    """With what says that it is to go back to it."""
    instance = _load_idle(id)
    if not _has_left(host, instance, pool):
        raise Busy(_describe(instance))
    remove(pool, volume)
    records = InstanceRecords(instance)
    records.put_all({}, dict.fromkeys(records.former()))
    return "it was removed"


def _describe_unknown(instance: Any, pool: str, volume: str) -> Finding:
    whose = "has a name that Nova knows no server by"
    if instance:
        whose = (
            f"is named like a disk of {_describe(instance)}, which is on host {instance.host!r}"
        )
    return warning(
        f"volume {volume} in pool {pool!r} {whose}, and no record of this host names it",
        f"'{Tool.VOLUMES} {pool}' lists it; remove it if nobody needs it",
    )


def _of_a_deleted(host: Host, instance: Any, pool: LibvirtPool, volume: str) -> Finding:
    what = f"volume {volume} in pool {pool.name!r} was a disk of {_describe(instance)}, "
    what += "which is deleted"
    if host.domains.state(ServerId(instance.uuid)) is not None:
        return warning(f"{what}, and its domain is still there", "nova-compute ends it in time")
    return problem(what, f"'{Tool.REPAIR}' removes it", partial(_remove, pool, volume))


def _remove(pool: LibvirtPool, volume: str) -> str:
    remove(pool, volume)
    return "it was removed"


def _ever_known(ids: set[ServerId]) -> Mapping[str, Any]:
    """Instances by id, also those that were deleted, unless they are in Nova's archive."""
    if not ids:
        return {}
    admin = context.get_admin_context(read_deleted="yes")
    found = InstanceList.get_by_filters(
        admin, {"uuid": sorted(ids)}, expected_attrs=["system_metadata"]
    )
    return {each.uuid: each for each in found}
