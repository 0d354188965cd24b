"""All hosts of the configuration, and what they share."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from millpond import config
from millpond.config import Settings
from millpond.errors import BadInput, HostNotConfigured, NoSuchHost, StateNotReadable
from millpond.hosts.capabilities import Schedulable
from millpond.hosts.host import Host
from millpond.hosts.shared import Shared
from millpond.model.callbacks import noop
from millpond.model.names import did_you_mean
from millpond.model.server import Server
from millpond.records.journal import Watch
from millpond.scheduling.api import LazyTransport
from millpond.scheduling.claims import Claims, PlacedClaims
from millpond.scheduling.disabled import DisabledHosts
from millpond.scheduling.placement import Placement
from millpond.scheduling.reporter import Reporter, ReportFile
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.summary import HostSummary, summarize


class Deployment(Shared):
    """No host is spoken to before something is asked of it."""

    def __init__(self, settings: Settings, watch: Watch = noop) -> None:
        super().__init__(settings)
        self._watch = watch

    @classmethod
    def load(cls, config_files: Sequence[Path], watch: Watch = noop) -> "Deployment":
        """Raises StateNotReadable where the state directory is another user's."""
        settings = config.load(config_files)
        _refuse_unreadable(settings.state_path)
        return cls(settings, watch)

    @cached_property
    def hosts(self) -> Mapping[str, Host]:
        """By the host's name, in the order of the configuration."""
        return {name: Host(name, self, self._watch, self.claims) for name in self.settings.hosts}

    @property
    def schedules(self) -> bool:
        """Where there is one host, and it may have every server, nobody need be asked."""
        asks = self.settings.scheduler.filter_hosts_by_image_type_support
        return len(self.settings.hosts) > 1 or asks or self.settings.placement is not None

    @cached_property
    def scheduler(self) -> Scheduler:
        settings = self.settings.scheduler
        reporter = Reporter(
            {name: Schedulable(each) for name, each in self.hosts.items()},
            self._placement,
            self.records,
            self.locks,
            ReportFile(self._placement_directory / "reported.json", settings.report_interval),
            DisabledHosts(self.settings.state_path / "hosts" / "disabled.json", self.locks),
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
        return Placement(LazyTransport(self.settings.placement, self._placement_directory))

    @cached_property
    def claims(self) -> Claims | None:
        """None where nothing is scheduled."""
        if not self.schedules:
            return None
        return PlacedClaims(self._placement, lambda: self.scheduler.reporter.providers())

    def host(self, name: str = "") -> Host:
        """The named one, or the only one there is."""
        names = tuple(self.hosts)
        if name and name not in names:
            raise NoSuchHost(name, did_you_mean(names, name))
        if not name and len(names) > 1:
            raise BadInput(
                "there are several hosts", f"say which one: --host {' or '.join(names)}"
            )
        return self.hosts[name or names[0]]

    def select(self, hosts: Sequence[str] | None) -> list[Host]:
        """Those that are named, or all."""
        return [self.host(each) for each in hosts or self.hosts]

    def host_of(self, server: Server) -> Host:
        if server.host not in self.hosts:
            raise HostNotConfigured(server.name, server.host)
        return self.hosts[server.host]

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
        disabled = reporter.disabled.read()
        return summarize(reporter.hosts, answers, reporter.known(), disabled, servers)

    def find(self, name_or_id: str, *, shortened: bool = False) -> tuple[Host, Server]:
        """A server, and its host."""
        server = self.server(name_or_id, shortened=shortened)
        return self.host_of(server), server

    @property
    def has_several(self) -> bool:
        return len(self.hosts) > 1


def _refuse_unreadable(state: Path) -> None:
    for path in (state, state / "servers", state / "images"):
        if path.exists() and not os.access(path, os.R_OK | os.X_OK):
            raise StateNotReadable(path)
