"""What hosts are and have, reported to Placement when it is due, and kept for the next command."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import MillpondError, StateNotWritable, UnreadableRecord
from millpond.libvirt.facts import HostFacts
from millpond.records import codec
from millpond.records.records import Records
from millpond.scheduling.claims import follow_providers
from millpond.scheduling.disabled import DisabledHosts
from millpond.scheduling.host import SchedulableHost
from millpond.scheduling.inventory import (
    ProviderTrees,
    Shared,
    find_shared_pools,
    inventory_of,
    merge_groups,
)
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import HostProviders, Hosts, pool_provider
from millpond.system import files
from millpond.system.locks import Locks

LOG = logging.getLogger(__name__)

_LOCK = "placement-report"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReport:
    """Of one host."""

    uuid: str
    """Empty of one that has never answered."""
    at: float
    """Seconds since 1970, by this machine's clock."""
    settings: str
    """A digest of those that it was reported with."""
    gone: str = ""
    """Why it was not reported; empty if it answered."""
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the hosts that share a pool, by its name."""

    @property
    def shared_pools(self) -> Shared:
        return {pool: frozenset(uuids) for pool, uuids in self.shared.items()}


LastReports = Mapping[str, LastReport]
"""By the host's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    hosts: LastReports = field(default_factory=dict)
    schema: int = _SCHEMA


class ReportFile:
    """Where the last reports are kept, and for how long they are good."""

    def __init__(self, path: Path, seconds: int) -> None:
        self._path = path
        self._seconds = seconds

    def read(self) -> LastReports:
        """Nothing, if it cannot be read: all hosts are reported again then."""
        try:
            found = codec.decode(self._path.read_bytes(), _File, self._path, _SCHEMA)
        except (FileNotFoundError, UnreadableRecord):
            return {}
        return found.hosts

    def write(self, reports: LastReports) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(self._path, codec.encode(_File(hosts=reports)))
        except OSError as error:
            raise StateNotWritable(self._path, error.strerror or str(error)) from error

    def is_current(self, report: LastReport | None, host: SchedulableHost) -> bool:
        """Also a clock that was set back makes it old."""
        if report is None or report.settings != host.settings_digest:
            return False
        return 0 <= time.time() - report.at < self._seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What came of asking a host what it is and has."""

    facts: HostFacts | None
    gone: str = ""
    """Why it did not answer."""


class Reporter:
    def __init__(
        self,
        hosts: Mapping[str, SchedulableHost],
        placement: Placement,
        records: Records,
        locks: Locks,
        file: ReportFile,
        disabled: DisabledHosts,
    ) -> None:
        self.hosts = hosts
        self._placement = placement
        self._records = records
        self._locks = locks
        self._file = file
        self.disabled = disabled

    def known(self) -> LastReports:
        """Hosts of the configuration that were reported at some time."""
        return self._known(self._file.read())

    def providers(self) -> Hosts:
        """Of the same hosts, as they were last reported."""
        return self._providers(self._file.read())

    def ask_hosts(self) -> Mapping[str, HostAnswer]:
        """All of them, without a word to Placement."""
        return {name: _ask(host) for name, host in self.hosts.items()}

    def report(self, *, prove: bool = True) -> Mapping[str, HostAnswer]:
        """All hosts as they are now. One that is gone gets no new servers. With ``prove`` it is
        found out again who shares pools."""
        with self._locks.hold(_LOCK):
            before = self._file.read()
            answers = self.ask_hosts()
            now = self._publish(answers, before, prove)
        self._follow(before, now)
        return answers

    def report_if_due(self) -> Hosts:
        """The providers of hosts as they were reported, now or before."""
        before = now = self._file.read()
        if self._is_due(now):
            with self._locks.hold(_LOCK):
                before = now = self._file.read()
                if self._is_due(now):  # else somebody else was faster
                    now = self._publish(self.ask_hosts(), before, prove=False)
            self._follow(before, now)
        return self._providers(now)

    def unreported(self) -> list[str]:
        """Hosts that Placement does not know, or not as they are configured now."""
        known, providers = self.known(), self._placement.providers
        return [
            name
            for name, host in self.hosts.items()
            if name not in known
            or known[name].settings != host.settings_digest
            or not providers.find(uuid=known[name].uuid)
        ]

    def _known(self, reports: LastReports) -> LastReports:
        return {name: each for name, each in reports.items() if name in self.hosts and each.uuid}

    def _providers(self, reports: LastReports) -> Hosts:
        return {
            name: HostProviders(
                host=each.uuid,
                pools={
                    pool: pool_provider(each.uuid, pool, each.shared.get(pool, ()))
                    for pool in sorted(self.hosts[name].disk_pools())
                },
            )
            for name, each in self._known(reports).items()
        }

    def _is_due(self, reports: LastReports) -> bool:
        return not all(
            self._file.is_current(reports.get(name), host) for name, host in self.hosts.items()
        )

    def _follow(self, before: LastReports, now: LastReports) -> None:
        providers = self._providers(before), self._providers(now)
        follow_providers(self._placement, self._records, *providers)

    def _publish(
        self, answers: Mapping[str, HostAnswer], before: LastReports, prove: bool
    ) -> LastReports:
        facts = {name: each.facts for name, each in answers.items() if each.facts}
        shared = self._find_shared(facts, before, prove)
        trees = ProviderTrees(self._placement)
        left_names = {each.uuid for name, each in before.items() if name not in self.hosts}
        for name, found in facts.items():
            if found.uuid in left_names:
                trees.rename(found.uuid, name)
        disabled = self.disabled.read()
        trees.publish(
            [
                inventory_of(self.hosts[name], found, shared[name], disabled=name in disabled)
                for name, found in facts.items()
            ]
        )
        for name, each in self._known(before).items():
            if answers[name].gone:
                trees.disable(each.uuid)
        reports = {
            name: self._report_of(name, answer, shared.get(name, {}), before.get(name))
            for name, answer in answers.items()
        }
        now = {**before, **reports}
        self._file.write(now)
        return now

    def _report_of(
        self, name: str, answer: HostAnswer, shared: Shared, before: LastReport | None
    ) -> LastReport:
        known = before.uuid if before else ""
        return LastReport(
            uuid=answer.facts.uuid if answer.facts else known,
            at=time.time(),
            settings=self.hosts[name].settings_digest,
            gone=answer.gone,
            shared={pool: tuple(sorted(uuids)) for pool, uuids in shared.items()},
        )

    def _find_shared(
        self, facts: Mapping[str, HostFacts], before: LastReports, prove: bool
    ) -> Mapping[str, Shared]:
        """As it was found out before, as long as all hosts are configured as they were and none
        has come back. Who does not answer now shares what it shared: nothing proves otherwise."""
        known = self._known(before)
        is_known = all(
            name in before
            and before[name].settings == host.settings_digest
            and not (name in facts and before[name].gone)
            for name, host in self.hosts.items()
        )
        if is_known and not (prove and len(facts) == len(self.hosts)):
            return {name: each.shared_pools for name, each in known.items()}
        uuids = {name: found.uuid for name, found in facts.items()}
        silent = {name: each for name, each in known.items() if name not in facts}
        those = [self.hosts[name] for name in facts]
        found = find_shared_pools(those, uuids, self._records.owner)
        kept = {name: each.shared_pools for name, each in silent.items()}
        all_uuids = {**uuids, **{name: each.uuid for name, each in silent.items()}}
        return merge_groups({**found, **kept}, all_uuids)


def _ask(host: SchedulableHost) -> HostAnswer:
    """A host whose pools cannot be used can take no server either."""
    try:
        facts = host.facts()
        for name in host.server_pools():
            host.open_pool(name)
    except MillpondError as error:
        LOG.warning("host %s gets no new servers: %s", host.name, error)
        return HostAnswer(facts=None, gone=str(error))
    return HostAnswer(facts=facts)
