"""Bring servers of a host that is dead to others that have their disks."""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millpond.errors import (
    BadOption,
    ConnectionLost,
    HostUnreachable,
    MillpondError,
    Tool,
    TooOld,
    UnfitHost,
    Unsupported,
    WrongState,
)
from millpond.hosts.availability import check_choice, disable
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.model.move import MigrateDetails, Way
from millpond.model.server import Content, Disk, Firmware, Server
from millpond.records import journal
from millpond.records.records import ServerJournal, without_operation
from millpond.scheduling.query import Purpose
from millpond.scheduling.scheduler import HostPlan, Plan
from millpond.servers import steps
from millpond.servers.evacuate_steps import EVACUATE, evacuating
from millpond.servers.migrate import scheduling_request, shared_pools
from millpond.servers.move_plan import (
    check_machine,
    check_networks,
    find_image,
    place,
    refuse_known,
    require_local_files,
    require_volume,
    taking_networks,
)
from millpond.servers.move_recovery import find_arrived, find_now, settle
from millpond.servers.move_steps import Move
from millpond.servers.supersede import end_claim, supersede

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuateRequest:
    source: str
    """The host that is dead."""
    host: str = ""
    """Where to; empty: the scheduler's choice."""
    fenced: bool = False
    """The operator's word that no guest of it runs any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEvacuated:
    server: Server
    """As it is now: it may have come to another host."""
    error: MillpondError


def find_servers(deployment: Deployment, source: str) -> list[Server]:
    """Those of the host, and those that an interrupted evacuation has taken from it."""
    deployment.host(source)
    servers, _ = deployment.records.readable()
    return [each for each in servers if each.host == source or _has_left(each, source)]


def evacuate(
    deployment: Deployment, servers: Sequence[Server], request: EvacuateRequest
) -> Iterator[Server | NotEvacuated]:
    """One after the other, as they are on another host then; each is tried, whatever becomes of
    the rest. Raises what speaks against all of them before anything is changed."""
    _check(deployment, servers, request)
    if not request.fenced:
        raise BadOption(
            "server evacuate",
            f"host {request.source!r} does not answer, which does not prove that its guests are "
            "off: two of one server would destroy its disks",
            "power the host off, or cut it off from the storage; then add --fenced",
        )
    disable(deployment, request.source, "evacuated")
    for each in servers:
        try:
            yield _evacuate(deployment, each, request)
        except MillpondError as error:
            yield NotEvacuated(server=find_now(deployment.records, each), error=error)


def decide(
    deployment: Deployment, servers: Sequence[Server], request: EvacuateRequest
) -> Iterator[str | NotEvacuated]:
    """The host that each would go to. Nothing is changed."""
    _check(deployment, servers, request)
    for each in servers:
        try:
            if each.host != request.source:  # interrupted after its switch, it is finished
                yield each.host
                continue
            if arrived := find_arrived(deployment.hosts[request.source], each):
                yield arrived
                continue
            current = _without_begun(each, request.source)
            _refuse_unsaved(current)
            plan = _planning(deployment, current, {})
            asked = scheduling_request(deployment, current, request.host, Purpose.EVACUATE)
            decision = deployment.scheduler.decide(asked, plan, everything=True)
            if not decision.choices:
                raise decision.no_valid_host()
            yield decision.choices[0]
        except MillpondError as error:
            yield NotEvacuated(server=each, error=error)


def _check(deployment: Deployment, servers: Sequence[Server], request: EvacuateRequest) -> None:
    for name in (request.source, request.host or request.source):
        check_choice(deployment, name)
    if request.host == request.source:
        raise BadOption("--host", f"{request.host!r} is the host that is dead", "name another one")
    for each in servers:
        if each.host != request.source and not _has_left(each, request.source):
            reason = f"server {each.name!r} is on host {each.host!r}"
            raise BadOption("--from", reason, f"'{Tool.SERVER} list' says where servers are")
    _refuse_alive(deployment.hosts[request.source])


def _refuse_alive(host: Host) -> None:
    try:
        host.libvirtd.versions()
    except (HostUnreachable, ConnectionLost):
        return
    except TooOld as error:
        LOG.debug("it answers: %s", error)
    raise BadOption(
        "server evacuate",
        f"host {host.name!r} answers: its servers are moved, not evacuated",
        f"'{Tool.SERVER} migrate' moves one, '{Tool.HOST} drain {host.name}' all of them",
    )


def _has_left(server: Server, source: str) -> bool:
    operation = server.operation
    if operation is None or operation.verb != EVACUATE:
        return False
    return isinstance(operation.details, MigrateDetails) and operation.details.source == source


def _without_begun(server: Server, source: str) -> Server:
    """As if nothing were under way on it. Raises LeftUnfinished."""
    return without_operation(server) if _has_left(server, source) else supersede(server)


def _evacuate(deployment: Deployment, server: Server, request: EvacuateRequest) -> Server:
    """One that was interrupted is finished, or undone and done again. What else was under way is
    written down until the first step of this takes its place."""
    with deployment.records.lock(server):
        current = deployment.records.find(server.id)
        host = deployment.hosts[request.source]
        if current and (_has_left(current, request.source) or find_arrived(host, current)):
            current = settle(deployment.host_of(current), current)
            if current.host != request.source:
                return current
        source = deployment.hosts[request.source]
        if current is None or current.host != source.name:
            where = f"on host {current.host}" if current else "gone"
            raise WrongState(server.name, where, f"on host {source.name}")
        begun, current = current, supersede(current)
        _refuse_unsaved(current)
        end_claim(source, begun)
        plans: dict[str, MigrateDetails] = {}

        def take(name: str) -> Server:
            move = Move(host=source, details=plans[name])
            notes = ServerJournal(deployment.records, plans[name])
            taking = taking_networks(move.destination, plans[name].at_destination(current))
            moved = journal.run(evacuating(move), current, notes, source.watch, taking)
            LOG.info("evacuated server %s from %s to %s", server.name, source.name, name)
            return moved

        plan = _planning(deployment, current, plans)
        asked = scheduling_request(deployment, current, request.host, Purpose.EVACUATE)
        return deployment.scheduler.place(asked, plan, take)


def _refuse_unsaved(server: Server) -> None:
    """What was lost with its host."""
    if legacy := [each.role for each in server.disks if each.path]:
        reason = f"{', '.join(legacy)} lies in Nova's legacy layout, and in no pool"
        raise Unsupported(f"evacuating server {server.name!r}", reason)
    if server.devices.tpm:
        raise Unsupported(
            f"evacuating server {server.name!r}",
            "the state of its TPM was in a file of its host",
            "its disks are in their pools as they were: make another server from them",
        )


def _planning(deployment: Deployment, server: Server, plans: dict[str, MigrateDetails]) -> Plan:
    def plan(name: str) -> HostPlan:
        destination = deployment.hosts[name]
        shared = shared_pools(deployment, server.host, name)
        plans[name] = details = _plan(destination, server, shared)
        moved = details.at_destination(server)
        check_networks(destination, moved)
        return HostPlan(server=moved, native=True, cached=True)

    return plan


def _plan(destination: Host, server: Server, shared: set[str]) -> MigrateDetails:
    """Raises what the destination lacks. UEFI variables that it cannot have are new ones."""
    steps.refuse_foreign_servers(destination)
    refuse_known(destination, server)
    check_machine(destination, server)
    ways = {each.role: _way(destination, server, each, shared) for each in server.disks}
    there = tuple(
        _plan_disk(destination, server, each, shared)
        if ways[each.role] is Way.SHARED
        else place(destination, each)
        for each in server.disks
    )
    if server.hardware.firmware is Firmware.UEFI and ways.get(Content.NVRAM) is not Way.SHARED:
        LOG.warning("the UEFI variables of %s were lost with its host", server.name)
    return MigrateDetails(
        migration=str(uuid.uuid4()),
        source=server.host,
        destination=destination.name,
        here=server.disks,
        there=there,
        ways=ways,
        starts=server.should_run,
    )


def _way(destination: Host, server: Server, disk: Disk, shared: set[str]) -> Way:
    """A server can start without the UEFI variables that it had: libvirt makes others. In a shared
    pool they are there, unless it was never started."""
    if disk.content is not Content.NVRAM:
        return Way.SHARED
    there = place(destination, disk)
    is_shared = disk.pool == there.pool and disk.pool in shared
    are_there = is_shared and (server.should_run or destination.disks.exists(there))
    return Way.SHARED if are_there else Way.NEW


def _plan_disk(destination: Host, server: Server, disk: Disk, shared: set[str]) -> Disk:
    require_local_files((destination,), disk)
    there = place(destination, disk)
    if disk.pool != there.pool or disk.pool not in shared:
        raise UnfitHost(
            f"{disk.role} is in pool {disk.pool} of host {server.host!r}, which host "
            f"{destination.name!r} was not proven to share",
            f"it is on host {server.host!r} alone, and comes back with it",
        )
    require_volume(destination, there)
    if disk.overlay and disk.template:
        _require_base(destination, server, disk, disk.template.volume)
    return there


def _require_base(destination: Host, server: Server, disk: Disk, name: str) -> None:
    """The dead host cannot say what its template held: the same image is the same content."""
    image = server.image_of(disk)
    if image is None:
        reason = f"{disk.role} is backed by a template that host {server.host!r} has formatted"
        raise UnfitHost(reason, f"it comes back with host {server.host!r}")
    store = destination.find_template_store()
    template = store.find(name) if store else None
    has = template.image == image.id if template else find_image(destination, server, disk)
    if not has:
        reason = f"host {destination.name!r} cannot have what {disk.role} is backed by"
        raise UnfitHost(f"{reason}: its image is gone")
