"""All hosts of the configuration, and what they have in common: the wiring, once."""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from millpond import config
from millpond.commons import Commons
from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import (
    BadInput,
    ConnectionLost,
    HostNotConfigured,
    HostProblem,
    HostUnreachable,
    NoSuchHost,
)
from millpond.model.server import Server
from millpond.placing.placing import Placing
from millpond.placing.standing import HostStanding, standing
from millpond.records.journal import Watch, unwatched
from millpond.scheduling.api import LazyDoor
from millpond.scheduling.claims import Claims, PlacedClaims, Unclaimed
from millpond.scheduling.decision import Decision
from millpond.scheduling.placement import Placement
from millpond.servers import create, steps
from millpond.servers import delete as deleting
from millpond.servers.request import ServerRequest
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
    def placing(self) -> Placing:
        return Placing(
            self.settings, self.engines, self.records, self.locks, self._placement, self._claims
        )

    @cached_property
    def _placement(self) -> Placement:
        return Placement(LazyDoor(self.settings.placement, self.settings.state_path / "placement"))

    @cached_property
    def _claims(self) -> Claims:
        if not self.schedules:
            return Unclaimed()
        return PlacedClaims(self._placement, lambda: self.placing.providers())

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

        return self.placing.place(self.placing.decide(request, host), create_on)

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
        return self.placing.decide(request, host, everything=True) if self.schedules else None

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

    def standings(self, *, refresh: bool) -> list[HostStanding]:
        """Every host as it is now; with ``refresh``, or when it is time, Placement is told."""
        if self.schedules and refresh:
            looks = self.placing.report()
        else:
            if self.schedules:
                self.placing.report_if_due()
            looks = self.placing.reporter.look()
        servers, _ = self.records.readable()
        return [
            standing(self.engines[name], look, self.placing.reporter, servers)
            for name, look in looks.items()
        ]

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
