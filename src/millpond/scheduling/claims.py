"""What servers take of their hosts, claimed in Placement."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from millpond.errors import Busy, NoRoom, NotReported
from millpond.model.server import Server
from millpond.records.records import Records
from millpond.scheduling import moves
from millpond.scheduling.placement import Allocations, Placement
from millpond.scheduling.providers import Hosts, allocations_for

LOG = logging.getLogger(__name__)

_LACKING = re.compile(r"allocation for '(\w+)' on resource provider")
"""In what Placement says of a claim that does not fit (placement/exception.py)."""


class Claims(Protocol):
    """Both may be called again after they were interrupted."""

    def hold(self, server: Server) -> None:
        """As much as its record says, instead of what it had. Raises NoRoom, and it has what it
        had."""
        ...

    def release(self, server: Server) -> None: ...

    def begin_move(self, moved: Server, migration: str) -> None:
        """What the server takes as it will be elsewhere, besides what it has here. Raises
        NoRoom, and it has what it had."""
        ...

    def confirm_move(self, migration: str) -> None:
        """What it had here is free."""
        ...

    def revert_move(self, server: Server, migration: str) -> None:
        """What it would have had elsewhere is free."""
        ...


class PlacedClaims:
    """In Placement."""

    def __init__(self, placement: Placement, find_hosts: Callable[[], Hosts]) -> None:
        self._placement = placement
        self._find_hosts = find_hosts

    def hold(self, server: Server) -> None:
        with _naming_host(server):
            self._placement.allocations.claim(server.id, self._allocations_for(server))

    def release(self, server: Server) -> None:
        self._placement.allocations.release(server.id)

    def begin_move(self, moved: Server, migration: str) -> None:
        there = self._allocations_for(moved)
        with _naming_host(moved):
            moves.begin(self._placement.allocations, moved.id, migration, there)

    def confirm_move(self, migration: str) -> None:
        moves.confirm(self._placement.allocations, migration)

    def revert_move(self, server: Server, migration: str) -> None:
        here = self._allocations_for(server)
        moves.revert(self._placement.allocations, server.id, migration, here)

    def _allocations_for(self, server: Server) -> Allocations:
        host = self._find_hosts().get(server.host)
        if host is None:
            raise NotReported(server.host)
        return allocations_for(server, host)


@contextmanager
def _naming_host(server: Server) -> Iterator[None]:
    """Placement names a provider by its UUID, which nobody knows."""
    try:
        yield
    except NoRoom as error:
        if not (lacking := _LACKING.search(error.reason)):
            raise
        has = f"host {server.host!r} has too little {lacking[1]} left for server {server.name!r}"
        raise NoRoom(has) from error


def follow_providers(placement: Placement, records: Records, before: Hosts, now: Hosts) -> None:
    """Servers of a host that was never reported before, or whose pools are other providers now,
    because somebody shares them or does not any more, claim what they take of those."""
    moved = {name for name, each in now.items() if before.get(name) != each}
    servers, _ = records.readable() if moved else ([], ())
    claims = PlacedClaims(placement, lambda: now)
    for server in servers:
        if server.host in moved:
            try:
                _claim_again(claims, records, server)
            except (NoRoom, Busy) as error:
                LOG.warning("server %s is not counted as it should be: %s", server.name, error)


def _claim_again(claims: Claims, records: Records, server: Server) -> None:
    """Under its lock: for one that is deleted meanwhile nothing is claimed any more."""
    with records.lock(server):
        current = records.find(server.id)
        if current and not current.operation:
            claims.hold(current)
