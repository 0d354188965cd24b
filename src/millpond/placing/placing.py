"""Hosts, Placement and the scheduler together: where a server goes, and what it takes there."""

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import stevedore

from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import Busy, HostProblem, NoRoom, NotReported
from millpond.model.server import Server
from millpond.placing.memory import Reported
from millpond.placing.reporter import HostLook, Reporter
from millpond.records.records import Records
from millpond.scheduling.decision import Choice, Decision, State, Verdict
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import DISK, MEMORY, VCPU, gibibytes, mebibytes, pool_provider
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.scheduler import HostView, Scheduler, SchedulingPolicy
from millpond.scheduling.values import Allocations
from millpond.servers.disks import root_size
from millpond.servers.request import ServerRequest, planned
from millpond.system.locks import Locks

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_DOORS = "millpond.placements"

Providers = Mapping[str, tuple[str, ...]]
"""UUIDs of each host's providers: its own, and those of its pools."""


class Placing:
    """Placement is loaded when it is first needed."""

    def __init__(
        self, settings: Settings, engines: Mapping[str, Engine], records: Records, locks: Locks
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._records = records
        self.reporter = Reporter(settings, engines, locks, lambda: self.placement)

    @cached_property
    def placement(self) -> Placement:
        access, directory = self._settings.placement, self._settings.state_path / "placement"
        manager: Any = stevedore.DriverManager(
            _DOORS,
            "external" if access else "embedded",
            invoke_on_load=True,
            invoke_args=(access, directory) if access else (directory,),
        )
        return Placement(manager.driver)

    def report(self, *, prove: bool = True) -> Mapping[str, HostLook]:
        before = self.providers()
        looks = self.reporter.report(prove=prove)
        self._follow(before)
        return looks

    def report_if_due(self) -> None:
        before = self.providers()
        if self.reporter.report_if_due():
            self._follow(before)

    def decide(
        self, request: ServerRequest, host: str = "", *, everything: bool = False
    ) -> Decision:
        """Where a new server would go. Nothing is claimed."""
        self.report_if_due()
        asked = _asked(request, host)

        def decided() -> Decision:
            return self._scheduler.decide(
                asked, lambda name: self._view(name, request), everything=everything
            )

        decision = decided()
        if decision.choices or not any(_is_unknown(each) for each in decision.verdicts):
            return decision
        self.report(prove=False)  # Placement has lost what it was told
        return decided()

    def place(self, decision: Decision, take: Callable[[Choice], T]) -> T:
        return self._scheduler.place(decision, take)

    def allocations_of(self, server: Server) -> Allocations:
        """What a server takes, by its record. Disks in no pool of its host's plan are not
        counted: nobody has reported where they are."""
        reported = self.reporter.known().get(server.host)
        if reported is None:
            raise NotReported(server.host)
        return {
            reported.uuid: {VCPU: server.flavor.vcpus, MEMORY: mebibytes(server.flavor.memory)},
            **{
                _provider(reported, pool): {DISK: size}
                for pool, size in self._sizes(server).items()
            },
        }

    def providers(self) -> Providers:
        return {
            name: (
                each.uuid,
                *(_provider(each, pool) for pool in sorted(self._engines[name].pools_of_disks())),
            )
            for name, each in self.reporter.known().items()
        }

    def _follow(self, before: Providers) -> None:
        """Servers of a host whose pools are other providers now, because somebody shares them or
        does not any more, take what they take of those."""
        now = self.providers()
        moved = {name for name, uuids in before.items() if name in now and now[name] != uuids}
        servers, _ = self._records.readable() if moved else ([], ())
        for server in servers:
            if server.host in moved:
                try:
                    self._claim_again(server)
                except (NoRoom, Busy) as error:
                    LOG.warning("server %s is not counted as it should be: %s", server.name, error)

    def _claim_again(self, server: Server) -> None:
        """Under its lock: for one that is deleted meanwhile nothing is claimed any more."""
        with self._records.lock(server):
            current = self._records.find(server.id)
            if current and not current.operation:
                self.placement.allocations.claim(current.id, self.allocations_of(current))

    def _sizes(self, server: Server) -> Mapping[str, int]:
        """GiB by pool; disks of one pool are added up before they are rounded."""
        known = self._engines[server.host].pools_of_disks()
        sizes: dict[str, int] = {}
        for disk in server.disks:
            if disk.pool in known:
                sizes[disk.pool] = sizes.get(disk.pool, 0) + disk.size
        return {pool: gibibytes(size) for pool, size in sizes.items() if size}

    @property
    def _scheduler(self) -> Scheduler:
        policy = SchedulingPolicy(
            filters_image_types=self._settings.scheduler.filter_hosts_by_image_type_support,
            multipliers=self._settings.scheduler.multipliers,
        )
        hosts = {name: each.uuid for name, each in self.reporter.known().items()}
        return Scheduler(self.placement, policy, hosts)

    def _view(self, name: str, request: ServerRequest) -> HostView:
        engine = self._engines[name]
        choice = engine.settings.libvirt.selection.choose(request.image.format)
        try:
            plan = self._sizes(planned(engine.host, request))
            cached = engine.cache.has(request.image.id, choice.template_format, choice.backend)
        except HostProblem as error:
            return HostView(native=False, cached=False, plan={}, unreachable=str(error))
        shared = self.reporter.shared_by(name)
        return HostView(native=choice.native, cached=cached, plan=plan, shared=shared)


class PlacedClaims:
    """What a host's servers take, in Placement."""

    def __init__(self, find: Callable[[], Placing]) -> None:
        self._find = find

    def hold(self, server: Server) -> None:
        wanted = self._find().allocations_of(server)
        self._find().placement.allocations.claim(server.id, wanted)

    def release(self, server: Server) -> None:
        self._find().placement.allocations.release(server.id)


def _asked(request: ServerRequest, host: str) -> SchedulingRequest:
    flavor = request.flavor
    return SchedulingRequest(
        server=request.name,
        image_format=request.image.format,
        vcpus=flavor.vcpus,
        memory=flavor.memory,
        root=root_size(request.image, flavor),
        blank=flavor.ephemeral + flavor.swap,
        image_properties=request.image.properties,
        extra_specs=flavor.extra_specs,
        host=host,
    )


def _is_unknown(verdict: Verdict) -> bool:
    return verdict.state is State.NOT_REPORTED


def _provider(reported: Reported, pool: str) -> str:
    return pool_provider(reported.uuid, pool, reported.shared.get(pool, ()))
