"""All hosts of the configuration, and what they have in common: the wiring, once."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from millpond import config
from millpond.commons import Commons
from millpond.config import Settings
from millpond.disks.selection import SOURCES
from millpond.engine import Engine
from millpond.errors import (
    BadInput,
    ConnectionLost,
    HostNotConfigured,
    HostProblem,
    HostUnreachable,
    NoSuchHost,
)
from millpond.libvirt.ensure import PoolWanted
from millpond.libvirt.facts import HostFacts, facts_of
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend, ImageFormat
from millpond.model.server import Server
from millpond.records.journal import Watch, unwatched
from millpond.scheduling.api import LazyDoor
from millpond.scheduling.claims import Claims, PlacedClaims, Unclaimed
from millpond.scheduling.decision import Decision
from millpond.scheduling.placement import Placement
from millpond.scheduling.reporter import Reporter, ReportFile
from millpond.scheduling.scheduler import HostPlan, Plan, Scheduler
from millpond.scheduling.summary import HostSummary, summarize
from millpond.servers import create, steps
from millpond.servers import delete as deleting
from millpond.servers.request import ServerRequest, planned, scheduling_request
from millpond.servers.status import statuses
from millpond.system.files import Progress, silent

LOG = logging.getLogger(__name__)


class Fleet(Commons):
    """No host is spoken to before something is asked of it."""

    def __init__(self, settings: Settings, watch: Watch = unwatched) -> None:
        super().__init__(settings)
        self._watch = watch

    @classmethod
    def load(cls, config_files: Sequence[Path], watch: Watch = unwatched) -> "Fleet":
        return cls(config.load(config_files), watch)

    @cached_property
    def engines(self) -> Mapping[str, Engine]:
        """By the host's name, in the order of the configuration."""
        return {
            name: Engine(name, self, self._watch, self._claims) for name in self.settings.hosts
        }

    @property
    def schedules(self) -> bool:
        """Where there is one host, and it may have every server, nobody need be asked."""
        asks = self.settings.scheduler.filter_hosts_by_image_type_support
        return len(self.settings.hosts) > 1 or asks or self.settings.placement is not None

    @cached_property
    def scheduler(self) -> Scheduler:
        settings = self.settings.scheduler
        reporter = Reporter(
            {name: _SchedulableEngine(each) for name, each in self.engines.items()},
            self._placement,
            self.records,
            self.locks,
            ReportFile(self._placement_directory / "reported.json", settings.report_interval),
        )
        return Scheduler(
            self._placement,
            reporter,
            settings.multipliers,
            filters_image_types=settings.filter_hosts_by_image_type_support,
        )

    @property
    def _placement_directory(self) -> Path:
        return self.settings.state_path / "placement"

    @cached_property
    def _placement(self) -> Placement:
        return Placement(LazyDoor(self.settings.placement, self._placement_directory))

    @cached_property
    def _claims(self) -> Claims:
        if not self.schedules:
            return Unclaimed()
        return PlacedClaims(self._placement, lambda: self.scheduler.reporter.providers())

    def create(
        self,
        request: ServerRequest,
        host: str = "",
        *,
        start: bool = True,
        progress: Progress = silent,
    ) -> Server:
        """On the best host that has room, or on the named one if it is fit for it."""
        if not self.schedules:
            return create.create(self.engine(host).host, request, start=start, progress=progress)

        def create_on(name: str) -> Server:
            there = self.engines[name].host
            return create.create(there, request, start=start, progress=progress)

        asked = scheduling_request(request, host)
        return self.scheduler.place(asked, self._planning(request), create_on)

    def _planning(self, request: ServerRequest) -> Plan:
        return lambda name: _plan(self.engines[name], request)

    def engine(self, host: str = "") -> Engine:
        """The named one, or the only one there is."""
        names = tuple(self.engines)
        if host and host not in names:
            raise NoSuchHost(host)
        if not host and len(names) > 1:
            raise BadInput(
                "there are several hosts", f"say which one: --host {' or '.join(names)}"
            )
        return self.engines[host or names[0]]

    def chosen(self, hosts: Sequence[str] | None) -> list[Engine]:
        """Those that are named, or all."""
        return [self.engine(each) for each in hosts or self.engines]

    def engine_of(self, server: Server) -> Engine:
        if server.host not in self.engines:
            raise HostNotConfigured(server.name, server.host)
        return self.engines[server.host]

    def decide(self, request: ServerRequest, host: str = "") -> Decision | None:
        """Where a server would go, with a verdict for every host; None where nobody is asked."""
        if not self.schedules:
            return None
        asked = scheduling_request(request, host)
        return self.scheduler.decide(asked, self._planning(request), everything=True)

    def delete(self, name_or_id: str, *, force: bool = False) -> None:
        """With ``force`` also a server whose host does not answer or is not configured: what is
        there of it stays there."""
        server = self.server(name_or_id)
        try:
            deleting.delete(self.engine_of(server).host, server, force=force)
        except (HostUnreachable, ConnectionLost, HostNotConfigured) as error:
            if not force:
                raise
            LOG.warning("the domain and the disks of %s stay behind: %s", server.name, error)
            self._forget(server)

    def _forget(self, server: Server) -> None:
        with self.records.lock(server):
            with steps.log_placement_errors(server):
                self._claims.release(server)
            self.records.remove(server.id)

    def summaries(self, *, refresh: bool) -> list[HostSummary]:
        """Every host as it is now; with ``refresh``, or when it is due, Placement is told."""
        reporter = self.scheduler.reporter
        if self.schedules and refresh:
            answers = reporter.report()
        else:
            if self.schedules:
                reporter.report_if_due()
            answers = reporter.ask_hosts()
        servers, _ = self.records.readable()
        return summarize(reporter.hosts, answers, reporter.known(), servers)

    def find(self, name_or_id: str) -> tuple[Engine, Server]:
        """A server, and the engine of its host."""
        server = self.server(name_or_id)
        return self.engine_of(server), server

    def states(self, servers: Sequence[Server]) -> Mapping[str, str]:
        """By the server's id; also of those whose host does not answer."""
        found: dict[str, str] = {}
        for host in {each.host for each in servers}:
            theirs = [each for each in servers if each.host == host]
            found |= self._states_on(host, theirs)
        return found

    def _states_on(self, host: str, servers: Sequence[Server]) -> Mapping[str, str]:
        if host not in self.engines:
            return {each.id: f"unknown: host {host} is not configured" for each in servers}
        engine = self.engines[host]
        try:
            return statuses(servers, engine.records, engine.domains)
        except HostProblem as error:
            if not self.has_several:
                raise
            LOG.warning("%s", error)
            return {each.id: f"unknown: host {host} does not answer" for each in servers}

    @property
    def has_several(self) -> bool:
        return len(self.engines) > 1


class _SchedulableEngine:
    """What scheduling asks of a host, answered by its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.uri = engine.settings.libvirt.connection_uri
        self.capacity = engine.settings.capacity

    @cached_property
    def settings_digest(self) -> str:
        return self._engine.settings.digest()

    def facts(self) -> HostFacts:
        found = facts_of(self._engine.libvirtd)
        return replace(found, hypervisor=self._engine.hypervisor(found.hypervisor))

    def disk_pools(self) -> Mapping[str, PoolWanted]:
        pools = self._engine.pool_plan.all()
        return {name: pools[name] for name in self._engine.pools_of_disks()}

    def open_pool(self, name: str) -> Pool:
        return self._engine.pools.named(name)

    def pools_by_image_type(self, hypervisor: str) -> Mapping[ImageFormat, str]:
        selection, plan = self._engine.settings.libvirt.selection, self._engine.pool_plan
        pools = {
            each: plan.for_disk(selection.choose(each).backend)
            if each in SOURCES
            else plan.for_disk(Backend.RAW, "kernel")
            for each in self._engine.image_types_of(hypervisor)
        }
        return {each: pool.name for each, pool in pools.items()}

    def blank_disk_pools(self) -> set[str]:
        backend = self._engine.settings.libvirt.selection.blank_backend()
        plan, roles = self._engine.pool_plan, ("disk.eph0", "disk.swap")
        return {plan.for_disk(backend, role).name for role in roles}


def _plan(engine: Engine, request: ServerRequest) -> HostPlan:
    choice = engine.settings.libvirt.selection.choose(request.image.format)
    return HostPlan(
        server=planned(engine.host, request),
        native=choice.native,
        cached=engine.cache.has(request.image.id, choice.template_format, choice.backend),
    )
