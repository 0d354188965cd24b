"""Move a server to another host: where to, and whether it can be."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from millpond.errors import BadOption, Busy, ImageNotFound, ImageRefused, MillpondError
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.libvirt.domains import ON
from millpond.libvirt.migration import LiveOptions
from millpond.model.callbacks import Progress, noop
from millpond.model.move import MigrateDetails
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk, Server
from millpond.records import journal
from millpond.records.records import ServerJournal
from millpond.scheduling.decision import Decision
from millpond.scheduling.query import Purpose, SchedulingRequest
from millpond.scheduling.scheduler import HostPlan, Plan
from millpond.servers import leftovers, steps
from millpond.servers.live_migrate import check_live, refuse_stopped
from millpond.servers.live_steps import LIVE_MIGRATE, LiveMove, live_migrating
from millpond.servers.move_plan import MovePlan, plan_move, refuse_unmovable, taking_networks
from millpond.servers.move_recovery import settle
from millpond.servers.move_steps import MIGRATE, migrating, refuse_running
from millpond.servers.shutdown import Tell
from millpond.servers.transition import bring_into_pools, comes_into_pools
from millpond.servers.transition_steps import adopt_bases

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateRequest:
    host: str = ""
    """Where to; empty: the scheduler's choice."""
    stop: bool = False
    """One that runs is stopped, and started again there."""
    patience: float = 60
    """Seconds that its guest has to power itself off."""
    live: LiveOptions | None = None
    """While it runs; None: while it is off."""
    tell: Tell = noop
    planned: Callable[[MovePlan], None] = noop
    progress: Progress = noop

    @property
    def purpose(self) -> Purpose:
        return Purpose.LIVE_MIGRATE if self.live else Purpose.MIGRATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    server: Server
    source: str
    plan: MovePlan | None
    """None of a move that was interrupted before, and is finished now."""
    moved: int
    """Bytes that were carried."""
    idle: float = 0
    """Seconds that its guest was paused, or off; 0 of one that did not run."""
    live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveDecision:
    decision: Decision
    plan: MovePlan | None
    """Of the host that it would go to; None: none fits."""


def migrate(deployment: Deployment, server: Server, request: MigrateRequest) -> Migrated:
    """One that was interrupted is finished, or undone and done again."""
    with deployment.records.lock(server):
        current = deployment.records.find(server.id) or server
        if (begun := find_begun(current)) is not None:
            settled = settle(deployment.host_of(current), current)
            if settled.host == begun.destination and request.host in ("", settled.host):
                return Migrated(server=settled, source=begun.source, plan=None, moved=0)
            current = settled
        source = deployment.host_of(current)
        current = steps.load_idle(source, current)
        _check_choice(deployment, source, current, request)
        current = bring_into_pools(source, current)
        adopt_bases(source, current)
        starts = _check(deployment, source, current, request)
        current = leftovers.sweep(source, current)
        return _migrate(deployment, source, current, request, starts=starts)


def decide(deployment: Deployment, server: Server, request: MigrateRequest) -> MoveDecision:
    """Where it would go, with a verdict for every host, and how its disks would travel."""
    source = deployment.host_of(server)
    if deployment.records.is_worked_on(server):
        raise Busy(f"server {server.name!r}")
    current = steps.load_idle(source, server)
    comes = comes_into_pools(source, current)
    starts = _check(deployment, source, current, request, comes=comes)
    plans: dict[str, MovePlan] = {}
    plan = _planning(deployment, source, current, request, plans, starts=starts)
    asked = scheduling_request(deployment, current, request.host, request.purpose)
    decision = deployment.scheduler.decide(asked, plan, everything=True)
    chosen = plans[decision.choices[0]] if decision.choices else None
    return MoveDecision(decision=decision, plan=chosen)


def find_live_obstacle(deployment: Deployment, server: Server, host: str) -> str:
    """What keeps it from moving while it runs, in words; empty: nothing does."""
    try:
        request = MigrateRequest(host=host, live=LiveOptions())
        found = decide(deployment, server, request)
    except MillpondError as error:
        return str(error)
    return "" if found.plan else str(found.decision.no_valid_host())


def find_begun(server: Server) -> MigrateDetails | None:
    """A move that was interrupted."""
    operation = server.operation
    if not operation or operation.verb not in (MIGRATE, LIVE_MIGRATE):
        return None
    return operation.details if isinstance(operation.details, MigrateDetails) else None


def _check_choice(
    deployment: Deployment, source: Host, server: Server, request: MigrateRequest
) -> None:
    if request.host:
        deployment.host(request.host)
    if request.host == source.name:
        reason = f"server {server.name!r} is on host {source.name!r} already"
        raise BadOption("--host", reason, "name another host, or none")
    if not deployment.has_several:
        reason = f"there is no other host than {source.name!r}"
        raise BadOption("server migrate", reason, "name another one in enabled_hosts")


def _check(
    deployment: Deployment,
    source: Host,
    server: Server,
    request: MigrateRequest,
    *,
    comes: bool = False,
) -> bool:
    """Whether it runs, and so is started again. Raises what speaks against any move. ``comes``:
    its disks would leave Nova's layout before."""
    _check_choice(deployment, source, server, request)
    if request.live:
        refuse_stopped(source, server)
        refuse_unmovable(source, server, leaves_layout=source.probe_local_files())
        return False
    if not request.stop:
        refuse_running(source, server)
    refuse_unmovable(source, server, leaves_layout=comes)
    return source.domains.state(server.id) in ON


def _migrate(
    deployment: Deployment, source: Host, server: Server, request: MigrateRequest, *, starts: bool
) -> Migrated:
    plans: dict[str, MovePlan] = {}

    def move_to(name: str) -> Migrated:
        plan = plans[name]
        request.planned(plan)
        move = LiveMove(
            host=source,
            details=plan.details,
            patience=request.patience,
            tell=request.tell,
            progress=request.progress,
            arriving=Intake(deployment.own_images).arriving,
            route=plan.route,
            options=request.live or LiveOptions(),
        )
        verb = live_migrating(move) if request.live else migrating(move)
        notes = ServerJournal(deployment.records, plan.details)
        taking = taking_networks(move.destination, plan.server)
        moved = journal.run(verb, server, notes, source.watch, taking)
        LOG.info("moved server %s from %s to %s", server.name, source.name, name)
        carried = sum(each.moved for each in move.sent.values()) + move.measured.job.all
        return Migrated(
            server=moved,
            source=source.name,
            plan=plan,
            moved=carried,
            idle=move.measured.idle,
            live=bool(request.live),
        )

    plan = _planning(deployment, source, server, request, plans, starts=starts)
    asked = scheduling_request(deployment, server, request.host, request.purpose)
    return deployment.scheduler.place(asked, plan, move_to)


def _planning(
    deployment: Deployment,
    source: Host,
    server: Server,
    request: MigrateRequest,
    plans: dict[str, MovePlan],
    *,
    starts: bool,
) -> Plan:
    def plan(name: str) -> HostPlan:
        destination = deployment.hosts[name]
        shared = shared_pools(deployment, source.name, name)
        found = plan_move(source, destination, server, shared, starts=starts)
        if request.live:
            route = check_live(source, destination, server, found.details)
            details = replace(found.details, post_copy=request.live.post_copy)
            found = replace(found, route=route, details=details)
        plans[name] = found
        return HostPlan(server=found.server, native=True, cached=found.is_cached)

    return plan


def shared_pools(deployment: Deployment, one: str, other: str) -> set[str]:
    """Pools of both that were proven to be one (B32)."""
    known = deployment.scheduler.reporter.known()
    there = known[other].uuid
    return {pool for pool, hosts in known[one].shared_pools.items() if there in hosts}


def scheduling_request(
    deployment: Deployment, server: Server, host: str, purpose: Purpose
) -> SchedulingRequest:
    """Disks in pools that all possible destinations share need nothing there."""
    deployment.scheduler.reporter.report_if_due()
    known = deployment.scheduler.reporter.known()
    others = [host] if host else [each for each in known if each != server.host]
    alike = [shared_pools(deployment, server.host, each) for each in others if each in known]
    shared = set.intersection(*alike) if alike and server.host in known else set()
    disks = [
        each
        for each in server.disks
        if each.pool not in shared and each.content is not Content.CONFIG
    ]
    return SchedulingRequest(
        server=ServerId(server.id),
        image_format=server.image.format,
        vcpus=server.flavor.vcpus,
        memory=server.flavor.memory,
        root=sum(each.size for each in disks if not _is_blank(each)),
        blank=sum(each.size for each in disks if _is_blank(each)),
        image_properties=_properties(deployment, server),
        extra_specs=server.flavor.extra_specs,
        host=host,
        avoid=frozenset({server.host}),
        purpose=purpose,
    )


def _is_blank(disk: Disk) -> bool:
    blank = (Content.EPHEMERAL, Content.SWAP, Content.BLANK, Content.DATA)
    return disk.content in blank and disk.image is None


def _properties(deployment: Deployment, server: Server) -> dict[str, str]:
    """Of its image, if that is still there."""
    try:
        return dict(deployment.images.describe(server.image.id).properties)
    except (ImageNotFound, ImageRefused):
        return {}
