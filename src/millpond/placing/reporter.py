"""What hosts are and have, brought to Placement when it is time; and who shares which pool."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import MillpondError
from millpond.libvirt.facts import HostFacts, facts_of
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
        placement: Placement,
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._locks = locks
        self._placement = placement
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
        known, providers = self.known(), self._placement.providers
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
        reporting = Reporting(self._placement)
        for name, found in facts.items():
            if found.uuid in self._left_names(before):
                reporting.rename(found.uuid, name)
        reporting.publish(
            [report(self._engines[name], found, shared[name]) for name, found in facts.items()]
        )
        for name, each in self.known().items():
            if looks[name].gone:
                reporting.disable(each.uuid)
        remembered = {
            name: self._remembered(name, look, before.get(name)) for name, look in looks.items()
        }
        self._memory.keep(
            {
                **before,
                **{
                    name: replace(each, shared=_written(shared.get(name, {})))
                    for name, each in remembered.items()
                },
            }
        )
        return looks

    def _left_names(self, before: Mapping[str, Reported]) -> set[str]:
        """UUIDs of hosts that had a name which the configuration does not have any more."""
        return {each.uuid for name, each in before.items() if name not in self._engines}

    def _remembered(self, name: str, look: HostLook, before: Reported | None) -> Reported:
        now, settings = time.time(), digest_of(self._settings.hosts[name])
        if look.facts:
            return Reported(uuid=look.facts.uuid, at=now, settings=settings)
        last = before or Reported(uuid="", at=now, settings=settings)
        return replace(last, at=now, settings=settings, gone=look.gone)

    def _find_shared(
        self, facts: Mapping[str, HostFacts], before: Mapping[str, Reported], prove: bool
    ) -> Mapping[str, Shared]:
        """As it was found out before, as long as all hosts are configured as they were and none
        has come back. Who does not answer now shares what it shared: nothing proves otherwise."""
        settings = self._settings.hosts
        known = self.known()
        is_known = all(
            name in before
            and before[name].settings == digest_of(settings[name])
            and not (name in facts and before[name].gone)
            for name in settings
        )
        if is_known and not (prove and len(facts) == len(settings)):
            return {name: _shared(before[name]) for name in settings if name in known}
        engines = {name: self._engines[name] for name in facts}
        uuids = {name: found.uuid for name, found in facts.items()}
        owner = next(iter(self._engines.values())).records.owner
        silent = {name: each for name, each in known.items() if name not in facts}
        found = proven_shared(engines, uuids, owner)
        kept = {name: _shared(each) for name, each in silent.items()}
        all_uuids = {**uuids, **{name: each.uuid for name, each in silent.items()}}
        return merged({**found, **kept}, all_uuids)


def _shared(reported: Reported | None) -> Shared:
    shared = reported.shared if reported else {}
    return {pool: frozenset(uuids) for pool, uuids in shared.items()}


def merged(shared: Mapping[str, Shared], uuids: Mapping[str, str]) -> Mapping[str, Shared]:
    """Groups of one pool that have a host in common are one."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for host, uuid in uuids.items():
        found[host] = {}
        for pool in {pool for each in shared.values() for pool in each}:
            group = {uuid}
            while (
                larger := {
                    member
                    for each in shared.values()
                    if group & each.get(pool, frozenset())
                    for member in each[pool]
                }
                - group
            ):
                group |= larger
            if len(group) > 1:
                found[host][pool] = frozenset(group)
    return found


def _written(shared: Shared) -> Mapping[str, tuple[str, ...]]:
    return {pool: tuple(sorted(uuids)) for pool, uuids in shared.items()}


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
