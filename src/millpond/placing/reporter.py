"""What hosts are and have, brought to Placement when it is time; and who shares which pool."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from millpond.compute.facts import HostFacts, facts_of
from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import MillpondError
from millpond.placing.memory import Memory, Reported, digest_of, is_current
from millpond.placing.reports import Shared, proven_shared, report
from millpond.scheduling.placement import Placement
from millpond.scheduling.reporting import Reporting
from millpond.system.locks import Locks

LOG = logging.getLogger(__name__)

_LOCK = "placement-report"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """A host as it was found."""

    facts: HostFacts | None
    gone: str = ""
    """Why it could not be looked at."""


class Reporter:
    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, Engine],
        locks: Locks,
        find_placement: Callable[[], Placement],
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._locks = locks
        self._placement = find_placement
        self._memory = Memory(settings.state_path / "placement" / "reported.json")

    def known(self) -> Mapping[str, Reported]:
        """Hosts of the configuration that were reported at some time."""
        remembered = self._memory.recall()
        return {
            name: each for name, each in remembered.items() if name in self._engines and each.uuid
        }

    def shared_by(self, host: str) -> Shared:
        """Pools that the host shares, as it was last found out."""
        return _shared(self.known().get(host))

    def look(self) -> Mapping[str, HostLook]:
        """At all hosts, without a word to Placement."""
        return {name: _look(engine) for name, engine in self._engines.items()}

    def report(self, *, prove: bool) -> Mapping[str, HostLook]:
        """All hosts as they are now. One that is gone gets no new servers. With ``prove`` it is
        found out anew who shares pools."""
        with self._locks.hold(_LOCK):
            return self._report(self._memory.recall(), prove)

    def report_if_due(self) -> bool:
        """Whether it was."""
        if self._is_current():
            return False
        with self._locks.hold(_LOCK):
            if self._is_current():  # somebody else was faster
                return False
            self._report(self._memory.recall(), prove=False)
            return True

    def unreported(self) -> list[str]:
        """Hosts that Placement does not know, or not as they are configured now."""
        known, providers = self.known(), self._placement().providers
        return [
            name
            for name, settings in self._settings.hosts.items()
            if name not in known
            or known[name].settings != digest_of(settings)
            or not providers.find(uuid=known[name].uuid)
        ]

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
        shared = self._find_shared(facts, before, prove)
        reporting = Reporting(self._placement())
        reporting.publish(
            [report(self._engines[name], found, shared[name]) for name, found in facts.items()]
        )
        for name, look in looks.items():
            if look.gone and name in self.known():
                reporting.disable(name)
        now = time.time()
        self._memory.keep(
            {
                **before,
                **{
                    name: self._remembered(name, look, before.get(name), shared, now)
                    for name, look in looks.items()
                },
            }
        )
        return looks

    def _remembered(
        self,
        name: str,
        look: HostLook,
        before: Reported | None,
        shared: Mapping[str, Shared],
        now: float,
    ) -> Reported:
        settings = digest_of(self._settings.hosts[name])
        if look.facts is None:
            last = before or Reported(uuid="", at=now, settings=settings)
            return replace(last, at=now, settings=settings, gone=look.gone)
        pools = {pool: tuple(sorted(uuids)) for pool, uuids in shared[name].items()}
        return Reported(uuid=look.facts.uuid, at=now, settings=settings, shared=pools)

    def _find_shared(
        self, facts: Mapping[str, HostFacts], before: Mapping[str, Reported], prove: bool
    ) -> Mapping[str, Shared]:
        """As it was found out before, as long as all hosts are configured as they were and none
        has come back; also while one does not answer, and nothing can be proven of it."""
        settings = self._settings.hosts
        is_known = all(
            name in before
            and before[name].settings == digest_of(settings[name])
            and not (name in facts and before[name].gone)
            for name in settings
        )
        if is_known and not (prove and len(facts) == len(settings)):
            return {name: _shared(before[name]) for name in facts}
        engines = {name: self._engines[name] for name in facts}
        uuids = {name: found.uuid for name, found in facts.items()}
        owner = next(iter(self._engines.values())).records.owner
        return proven_shared(engines, uuids, owner)


def _shared(reported: Reported | None) -> Shared:
    shared = reported.shared if reported else {}
    return {pool: frozenset(uuids) for pool, uuids in shared.items()}


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
