"""All hosts of the configuration, and what they have in common: the wiring, once."""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from millpond import config
from millpond.commons import Commons
from millpond.compute.status import statuses
from millpond.config import Settings
from millpond.engine import Engine
from millpond.errors import HostNotConfigured, HostNotFound, HostProblem, WhichHost
from millpond.model.server import Server
from millpond.records.journal import Watch, unwatched

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
            name: Engine(self.settings.on(name), self._watch, commons=self)
            for name in self.settings.hosts
        }

    def engine(self, host: str = "") -> Engine:
        """The named one, or the only one there is."""
        names = tuple(self.engines)
        if host and host not in names:
            raise HostNotFound(host, names)
        if not host and len(names) > 1:
            raise WhichHost(names)
        return self.engines[host or names[0]]

    def chosen(self, hosts: Sequence[str] | None) -> list[Engine]:
        """Those that are named, or all."""
        return [self.engine(each) for each in hosts or self.engines]

    def engine_of(self, server: Server) -> Engine:
        if server.host not in self.engines:
            raise HostNotConfigured(server.name, server.host)
        return self.engines[server.host]

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
