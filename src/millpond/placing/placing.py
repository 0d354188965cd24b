"""Hosts, Placement and the scheduler together: what is reported, where a server goes, and what it
takes there."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import stevedore

from millpond.compute.disks import root_size
from millpond.compute.facts import HostFacts, facts_of
from millpond.compute.request import ServerRequest, planned
from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import HostProblem, MillpondError, NotReported
from millpond.model.server import Server
from millpond.placing.memory import Memory, Reported, digest_of, is_current
from millpond.placing.reports import Shared, proven_shared, report
from millpond.records.records import Records
from millpond.scheduling.decision import Decision, State, Verdict
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import DISK, MEMORY, VCPU, gibibytes, mebibytes, pool_provider
from millpond.scheduling.reporting import Reporting
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.scheduler import HostView, Scheduler, SchedulingPolicy
from millpond.scheduling.values import Allocations
from millpond.system.locks import Locks

LOG = logging.getLogger(__name__)

_DOORS = "millpond.placements"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """A host as it was found when it was last looked at."""

    facts: HostFacts | None
    gone: str = ""
    """Why it could not be looked at."""


class Placing:
    """Placement is loaded when it is first needed."""

    def __init__(
        self, settings: Settings, engines: Mapping[str, Engine], records: Records, locks: Locks
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._records = records
        self._locks = locks
        self._memory = Memory(settings.state_path / "placement" / "reported.json")

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
        """All hosts as they are now. One that is gone gets no new servers. With ``prove`` it is
        found out anew who shares pools."""
        with self._locks.hold("placement-report"):
            return self._report(self._memory.recall(), prove)

    def report_if_due(self) -> None:
        if self._is_current():
            return
        with self._locks.hold("placement-report"):
            if not self._is_current():  # somebody else was faster
                self._report(self._memory.recall(), prove=False)

    def unreported(self) -> list[str]:
        """Hosts that Placement does not know, or not as they are configured now."""
        remembered = self._memory.recall()
        return [
            name
            for name, settings in self._settings.hosts.items()
            if name not in remembered
            or remembered[name].settings != digest_of(settings)
            or not self.placement.providers.find(uuid=remembered[name].uuid)
        ]

    def look(self) -> Mapping[str, HostLook]:
        """At all hosts, without a word to Placement."""
        return {name: _look(engine) for name, engine in self._engines.items()}

    def shared_by(self, host: str) -> Shared:
        """Pools that the host shares, as it was last found out."""
        found = self._memory.recall().get(host)
        shared = found.shared if found else {}
        return {pool: frozenset(uuids) for pool, uuids in shared.items()}

    def names_by_uuid(self) -> Mapping[str, str]:
        return {each.uuid: name for name, each in self._memory.recall().items()}

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

    def allocations_of(self, server: Server) -> Allocations:
        """What a server takes, by its record. Disks in no pool of its host's plan are not
        counted: nobody has reported where they are."""
        reported = self._memory.recall().get(server.host)
        if reported is None:
            raise NotReported(server.host)
        return {
            reported.uuid: {VCPU: server.flavor.vcpus, MEMORY: mebibytes(server.flavor.memory)},
            **{
                _provider(reported, pool): {DISK: size}
                for pool, size in self._sizes(server).items()
            },
        }

    def providers(self) -> Mapping[str, tuple[str, ...]]:
        """UUIDs of the providers of each host: its own, and those of its pools."""
        return {
            name: (
                each.uuid,
                *(_provider(each, pool) for pool in self._engines[name].pools_of_disks()),
            )
            for name, each in self._memory.recall().items()
            if name in self._engines
        }

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
        remembered = self._memory.recall()
        hosts = {name: each.uuid for name, each in remembered.items() if name in self._engines}
        return Scheduler(self.placement, policy, hosts)

    def _view(self, name: str, request: ServerRequest) -> HostView:
        engine = self._engines[name]
        choice = engine.settings.libvirt.selection.choose(request.image.format)
        try:
            plan = self._sizes(planned(engine.host, request))
            cached = engine.cache.has(request.image.id, choice.template_format, choice.backend)
        except HostProblem as error:
            return HostView(native=False, cached=False, plan={}, unreachable=str(error))
        return HostView(
            native=choice.native, cached=cached, plan=plan, shared=self.shared_by(name)
        )

    def _is_current(self) -> bool:
        remembered = self._memory.recall()
        seconds = self._settings.scheduler.report_interval
        return all(
            name in remembered and is_current(remembered[name], settings, seconds)
            for name, settings in self._settings.hosts.items()
        )

    def _report(self, before: Mapping[str, Reported], prove: bool) -> Mapping[str, HostLook]:
        looks = self.look()
        facts = {name: look.facts for name, look in looks.items() if look.facts}
        shared = self._shared(facts, before, prove)
        reports = [
            report(self._engines[name], found, shared[name]) for name, found in facts.items()
        ]
        reporting = Reporting(self.placement)
        reporting.publish(reports)
        for name, look in looks.items():
            if look.gone and name in before:
                reporting.disable(name)
        now = time.time()
        self._memory.keep(
            {
                **{name: each for name, each in before.items() if name not in self._engines},
                **{
                    name: replace(before[name], at=now, gone=look.gone)
                    for name, look in looks.items()
                    if look.gone and name in before
                },
                **{
                    name: Reported(
                        uuid=found.uuid,
                        at=now,
                        settings=digest_of(self._settings.hosts[name]),
                        shared={pool: tuple(sorted(u)) for pool, u in shared[name].items()},
                    )
                    for name, found in facts.items()
                },
            }
        )
        return looks

    def _shared(
        self, facts: Mapping[str, HostFacts], before: Mapping[str, Reported], prove: bool
    ) -> Mapping[str, Shared]:
        """As it was found out before, as long as all hosts are configured as they were; also while
        one of them does not answer, and nothing can be proven."""
        settings = self._settings.hosts
        known = all(
            name in before and before[name].settings == digest_of(settings[name])
            for name in settings
        )
        if known and not (prove and len(facts) == len(settings)):
            return {name: self.shared_by(name) for name in facts}
        engines = {name: self._engines[name] for name in facts}
        uuids = {name: found.uuid for name, found in facts.items()}
        return proven_shared(engines, uuids, self._records.owner)


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


def _look(engine: Engine) -> HostLook:
    """A host whose pools cannot be used can take no server either."""
    try:
        facts = facts_of(engine.libvirtd)
        for name in engine.pools_of_disks():
            engine.pools.named(name)
    except MillpondError as error:
        LOG.warning("host %s gets no new servers: %s", engine.name, error)
        return HostLook(facts=None, gone=str(error))
    return HostLook(facts=facts)


def _provider(reported: Reported, pool: str) -> str:
    return pool_provider(reported.uuid, pool, reported.shared.get(pool, ()))
