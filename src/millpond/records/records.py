"""Where the one authoritative record of each server is kept (B50)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from millpond.model.names import ServerId
from millpond.model.server import Operation, Server


class Records(Protocol):
    @property
    def owner(self) -> str:
        """Who these records belong to; servers carry it as a mark (B31)."""
        ...

    def find(self, id: ServerId) -> Server | None: ...

    def all(self) -> Sequence[Server]:
        """Every server, by name."""
        ...

    def put(self, server: Server) -> None:
        """Durable when it returns."""
        ...

    def remove(self, id: ServerId) -> None: ...

    def lock(self, server: Server) -> AbstractContextManager[None]:
        """Held for a whole operation; Busy if somebody else works on the server."""
        ...

    def lock_name(self, name: str) -> AbstractContextManager[None]:
        """Held while a name is looked up and taken."""
        ...

    def is_worked_on(self, server: Server) -> bool: ...


class ServerJournal:
    """The operation under way, in the server's own record."""

    def __init__(self, records: Records, *, removes: bool = False) -> None:
        self._records = records
        self._removes = removes

    def enter(self, state: Server, verb: str, step: str) -> Server:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        operation = Operation(verb=verb, step=step, started=now)
        return self._put(replace(state, operation=operation))

    def finish(self, state: Server) -> Server:
        done = replace(state, operation=None)
        if self._removes:
            self._records.remove(state.id)
            return done
        return self._put(done)

    def forget(self, state: Server) -> None:
        self._records.remove(state.id)

    def _put(self, server: Server) -> Server:
        self._records.put(server)
        return server
