"""Hosts, Placement and the scheduler together: where a server goes, and what it takes there."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from millpond.config import Settings
from millpond.engine import Engine
from millpond.placing.reporter import HostLook, Reporter
from millpond.records.records import Records
from millpond.scheduling.claims import Claims, follow_providers
from millpond.scheduling.decision import Decision, State, Verdict
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import HostProviders, pool_provider
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.scheduler import HostPlan, Scheduler, SchedulingPolicy
from millpond.servers.disks import root_size
from millpond.servers.request import ServerRequest, planned
from millpond.system.locks import Locks

T = TypeVar("T")


class Placing:
    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, Engine],
        records: Records,
        locks: Locks,
        placement: Placement,
        claims: Claims,
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._records = records
        self.placement = placement
        self._claims = claims
        self.reporter = Reporter(settings, engines, locks, placement)

    def report(self, *, prove: bool = True) -> Mapping[str, HostLook]:
        before = self.providers()
        looks = self.reporter.report(prove=prove)
        follow_providers(self._claims, self._records, before, self.providers())
        return looks

    def report_if_due(self) -> None:
        before = self.providers()
        if self.reporter.report_if_due():
            follow_providers(self._claims, self._records, before, self.providers())

    def decide(
        self, request: ServerRequest, host: str = "", *, everything: bool = False
    ) -> Decision:
        """Where a new server would go. Nothing is claimed."""
        self.report_if_due()
        asked = _asked(request, host)

        def decided() -> Decision:
            return self._scheduler.decide(
                asked, lambda name: self._plan(name, request), everything=everything
            )

        decision = decided()
        if decision.choices or not any(_is_unknown(each) for each in decision.verdicts):
            return decision
        self.report(prove=False)  # Placement has lost what it was told
        return decided()

    def place(self, decision: Decision, take: Callable[[str], T]) -> T:
        return self._scheduler.place(decision, take)

    def providers(self) -> Mapping[str, HostProviders]:
        """Of hosts that were reported, by their names."""
        return {
            name: HostProviders(
                host=each.uuid,
                pools={
                    pool: pool_provider(each.uuid, pool, each.shared.get(pool, ()))
                    for pool in sorted(self._engines[name].pools_of_disks())
                },
            )
            for name, each in self.reporter.known().items()
        }

    @property
    def _scheduler(self) -> Scheduler:
        policy = SchedulingPolicy(
            filters_image_types=self._settings.scheduler.filter_hosts_by_image_type_support,
            multipliers=self._settings.scheduler.multipliers,
        )
        return Scheduler(self.placement, policy, self.providers())

    def _plan(self, name: str, request: ServerRequest) -> HostPlan:
        engine = self._engines[name]
        choice = engine.settings.libvirt.selection.choose(request.image.format)
        return HostPlan(
            server=planned(engine.host, request),
            native=choice.native,
            cached=engine.cache.has(request.image.id, choice.template_format, choice.backend),
        )


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
