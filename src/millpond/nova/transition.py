"""Servers that Nova's own driver has made on this host: found, and their disks brought into the
pools while they are off.

Files get another name in the pool, or are copied where it is on another file system. Logical
volumes and images in Ceph get a record and nothing else. Kernels and ramdisks stay files.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nova import context
from nova.compute import vm_states
from nova.objects.instance import InstanceList

from millpond.errors import BadConfiguration, BadOption, HostProblem, MillpondError, Unsupported
from millpond.hosts.host import Host
from millpond.hosts.legacy import find_layout
from millpond.legacy.disk import NO_EVIDENCE, LegacyDisk, LegacyServer
from millpond.legacy.layout import NovaLayout
from millpond.libvirt.domains import ON
from millpond.model.formats import Backend
from millpond.model.names import ServerId, volume_name
from millpond.model.server import Content, Disk, Server
from millpond.model.transition import TransitionDetails
from millpond.nova.records import InstanceRecords
from millpond.nova.transition_journal import InstanceJournal, find_begun, is_begun, step_of
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.servers.transition import refresh_pools
from millpond.servers.transition_plan import plan_files_in
from millpond.servers.transition_steps import (
    TRANSITION,
    Transit,
    adopt_bases,
    moving_files,
    remove_old,
)

LOG = logging.getLogger(__name__)

NO_RETURN = "remove"
_NONE_IS_LEFT = (
    "images_type is libvirt-storage, but servers on this host have disks that Nova's own driver "
    "made"
)
_UNTIL_NONE_IS = "set it to what Nova had until 'millpond-nova-transition status' lists none"
_STAYS = (Content.KERNEL, Content.RAMDISK)
_UNSETTLED = {
    vm_states.RESCUED: "it is in rescue",
    vm_states.RESIZED: "its resize is neither confirmed nor reverted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An instance of this host with disks that Nova's own driver made."""

    instance: Any
    disks: tuple[LegacyDisk, ...]
    """Those that are to come into the pools, or into the records."""
    begun: bool = False
    """Something has ended in the middle of moving them."""

    @property
    def obstacles(self) -> tuple[str, ...]:
        return tuple(self._obstacles())

    def _obstacles(self) -> Iterator[str]:
        if reason := _UNSETTLED.get(self.instance.vm_state):
            yield reason
        for disk in self.disks:
            yield from (f"{disk.role}: {each}" for each in _objections(self.instance, disk))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    server: Server
    """With the disks that move, as they are now."""
    details: TransitionDetails
    in_place: tuple[Disk, ...] = ()
    """Those that are in their pools already."""

    @property
    def disks(self) -> int:
        return len(self.details.here) + len(self.in_place)


def instances_of(host: Host) -> Any:
    admin = context.get_admin_context()
    return InstanceList.get_by_host(
        admin, host.records.owner, expected_attrs=["system_metadata", "flavor"]
    )


def find_all(host: Host, instances: Sequence[Any]) -> list[Found]:
    layout = _layout(host)
    known = {each.uuid for each in instances if _has_records(each)}
    found = {each.id: each for each in layout.servers(known=known)}
    for each in filter(is_begun, instances):
        if server := layout.find_moving(ServerId(each.uuid)):
            found[server.id] = server
    seen = (_of(each, found.get(ServerId(each.uuid))) for each in instances)
    return [each for each in seen if each]


def find(host: Host, instance: Any) -> Found | None:
    """By its metadata as they are. The pools are asked only for a server that may have a disk
    there of which there is no record."""
    flavor = instance.flavor
    may_be_volumes = instance.image_ref or flavor.ephemeral_gb or flavor.swap
    asks = may_be_volumes and not _has_records(instance)
    layout = _layout(host) if asks else host.nova_layout({})
    return _of(instance, layout.find(ServerId(instance.uuid)))


def bring_into_pools(host: Host, instance: Any) -> bool:
    """Of a server that is off: afterwards its disks are ours. False if they stay in Nova's layout,
    and serve as before: a warning said why. What an earlier attempt left is finished or undone
    first; raises if that cannot be, or if what was begun cannot be undone."""
    with host.disks.lock(ServerId(instance.uuid)):
        settle(host, instance)
        found = find(host, instance)
        if found is None:
            return True
        try:
            planned = plan(host, found)
            move(host, instance, planned)
        except (MillpondError, OSError) as error:
            if not is_begun(instance):
                LOG.warning("server %s stays in Nova's layout: %s", instance.uuid, error)
                return False
            if not has_arrived(instance):  # it could not be undone either
                raise
            _leave_for_later(instance, error)
    refresh_pools(host, [planned.details.after(planned.server)])
    return True


def is_concerned(host: Host, instance: Any) -> bool:
    """Whether bring_into_pools() has anything to do. Somebody may be doing it: then it waits."""
    with host.disks.lock(ServerId(instance.uuid)):
        InstanceRecords(instance).refresh()
        return is_begun(instance) or find(host, instance) is not None


def plan(host: Host, found: Found) -> Plan:
    """Raises what makes it impossible; changes nothing."""
    if found.obstacles:
        advice = "'millpond-nova-transition status' says what is in the way of each"
        raise Unsupported("moving its disks", "; ".join(found.obstacles), advice)
    if host.settings.libvirt.selection.images_type.pools_only:
        raise HostProblem(_NONE_IS_LEFT, _UNTIL_NONE_IS)
    disks = [each.record(target=each.role, bus="") for each in found.disks]
    server = server_of(host, found.instance, [each for each in disks if each.path])
    details = plan_files_in(host, server)
    in_place = tuple(each for each in disks if not each.path)
    return Plan(server=server, details=details, in_place=in_place)


def move(host: Host, instance: Any, planned: Plan) -> None:
    """libvirt knows the volumes then, but not what is in them: see refresh_pools()."""
    notes = InstanceJournal(
        instance=instance,
        details=planned.details,
        no_return=NO_RETURN,
        besides={each.role: each for each in planned.in_place},
    )
    todo = verb(Transit(host=host, details=planned.details), TRANSITION)
    journal.run(todo, planned.server, notes, host.watch)
    LOG.info("server %s: its disks are in the pools", instance.uuid)


def settle(host: Host, instance: Any) -> None:
    """Finish or undo what was begun, by the metadata as they are now. Raises if that cannot be;
    but the old places can wait to be cleared."""
    InstanceRecords(instance).refresh()
    if not is_begun(instance):
        return
    server = server_of(host, instance, [])
    begun = find_begun(instance, server, host.shared.settings.instances_path)
    details, arrived = begun.details, begun.step == NO_RETURN
    disks = details.there if arrived else details.here
    notes = InstanceJournal(instance=instance, details=details, no_return=NO_RETURN)
    todo = verb(Transit(host=host, details=details), begun.verb)
    try:
        journal.recover(todo, begun.step, replace(server, disks=disks), notes, host.watch)
    except (MillpondError, OSError) as error:
        if not arrived:
            raise
        _leave_for_later(instance, error)
        return
    how = "finished" if arrived else "undone"
    LOG.warning("server %s: an interrupted %s was %s", instance.uuid, todo.name, how)


def has_arrived(instance: Any) -> bool:
    """Of what is begun: whether the records name the new places, and only old ones are left."""
    return step_of(instance) == NO_RETURN


def _leave_for_later(instance: Any, error: Exception) -> None:
    LOG.warning("server %s: what its disks left is not cleared yet: %s", instance.uuid, error)


def verb(transit: Transit, name: str) -> Verb[Server]:
    """Nova defines the domain when it starts the server."""
    host, details = transit.host, transit.details

    def prepare(server: Server) -> None:
        adopt_bases(host, details.before(server))

    bases = name == TRANSITION and any(each.template for each in details.there)
    return Verb(
        name,
        (
            *((Step("prepare", as_step(prepare)),) if bases else ()),
            *moving_files(transit),
            Step(NO_RETURN, as_step(partial(remove_old, transit))),
        ),
        finished=lambda server: server,
        undone=details.before,
        no_return=NO_RETURN,
    )


def server_of(host: Host, instance: Any, disks: Sequence[Disk]) -> Server:
    """With these disks. What Nova does with it at this moment is why we are asked."""
    server = host.records.find(ServerId(instance.uuid))
    if server is None:
        raise HostProblem(f"Nova knows no server {instance.uuid}", "it may just have been deleted")
    return replace(server, disks=tuple(disks), operation=None)


def look_at_start(host: Host) -> None:
    """Once for each start of nova-compute. Raises BadConfiguration where the operator says that
    no such server is left."""
    if host.nova_bases:
        host.nova_bases.protect_all()
    found = find_all(host, instances_of(host))
    if not found:
        return
    named = ", ".join(describe(each.instance) for each in found)
    if host.settings.libvirt.selection.images_type.pools_only:
        reason = f"{_NONE_IS_LEFT}: {named}"
        raise BadConfiguration((BadOption("[libvirt] images_type", reason, _UNTIL_NONE_IS),))
    LOG.warning(
        "servers on this host with disks that Nova's own driver made: %d. Each comes into the "
        "storage pools at its next hard reboot or start; 'millpond-nova-transition status' says "
        "what is in the way, and 'millpond-nova-transition run --all' moves those that are off: "
        "%s",
        *(len(found), named),
    )


def describe(instance: Any) -> str:
    name = instance.display_name
    return f"{name} ({instance.uuid})" if name else str(instance.uuid)


def is_on(host: Host, instance: Any) -> bool:
    return host.domains.state(ServerId(instance.uuid)) in ON


def _layout(host: Host) -> NovaLayout:
    """Without volumes if a pool of theirs does not answer: files are found all the same."""
    try:
        return find_layout(host)
    except HostProblem as error:
        LOG.warning("volumes that Nova's own driver made are not looked for: %s", error)
        return host.nova_layout({})


def _has_records(instance: Any) -> bool:
    """Of other disks than that of a rescue."""
    roles = InstanceRecords(instance).roles()
    return any(not each.endswith(".rescue") for each in roles)


def _of(instance: Any, found: LegacyServer | None) -> Found | None:
    has = InstanceRecords(instance).has
    disks = [
        each
        for each in (found.disks if found else ())
        if each.content not in _STAYS and not has(each.role)
    ]
    begun = is_begun(instance)
    if not begun and all(each.content in NO_EVIDENCE for each in disks):
        return None
    return Found(instance=instance, disks=tuple(disks), begun=begun)


def _objections(instance: Any, disk: LegacyDisk) -> Iterator[str]:
    yield from disk.obstacles
    if disk.layout is Backend.PLOOP:
        yield "Nova runs no ploop disks with QEMU"
    if disk.role.endswith(".rescue"):
        yield "it is of a rescue that was not ended"
    if disk.volume and disk.volume != volume_name(ServerId(instance.uuid), disk.role):
        yield f"it is not named as Millpond would name it: {disk.volume}"
