"""Where the one authoritative record of each server is kept (B50)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from millpond.errors import NoSpace, UnreadableRecord
from millpond.model.names import ServerId
from millpond.model.operation import Details, Operation
from millpond.model.server import Server


class Records(Protocol):
    @property
    def owner(self) -> str:
        """Who these records belong to; servers carry it as a mark (B31)."""
        ...

    def find(self, id: ServerId) -> Server | None: ...

    def all(self) -> Sequence[Server]:
        """Every server, by name."""
        ...

    def readable(self) -> tuple[list[Server], list[UnreadableRecord]]:
        """Every server whose record can be read, and what is wrong with the others."""
        ...

    def host_of(self, id: ServerId) -> str | None:
        """Where a server is, on whatever host; None if there is no such server."""
        ...

    def has_name(self, name: str) -> bool:
        """Whether a server is called so, on whatever host."""
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

    def __init__(
        self, records: Records, details: Details | None = None, *, insists: bool = True
    ) -> None:
        """``insists`` is off for a verb that may go on when a step cannot be written down for
        lack of space, because it makes some and can be repeated from the start."""
        self._records = records
        self._details = details
        self._insists = insists

    def enter(self, state: Server, verb: str, step: str) -> Server:
        before = state.operation
        now = datetime.now(UTC).isoformat(timespec="seconds")
        started = before.started if before and before.verb == verb else now
        operation = Operation(verb=verb, step=step, started=started, details=self._details)
        entered = replace(state, operation=operation)
        try:
            self._records.put(entered)
        except NoSpace:
            if self._insists:
                raise
        return entered

    def close(self, state: Server, remains: Server | None) -> None:
        if remains is None:
            self._records.remove(state.id)
        else:
            self._records.put(remains)


def without_operation(server: Server) -> Server:
    """The record of a server on which nothing is under way."""
    return replace(server, operation=None)


class RecordsOfHosts:
    """What is found is of these hosts; names and ids are taken whatever the host."""

    def __init__(self, records: Records, counts: Callable[[str], bool]) -> None:
        """``counts`` tells it of a host's name."""
        self._records = records
        self._counts = counts

    @property
    def owner(self) -> str:
        return self._records.owner

    def find(self, id: ServerId) -> Server | None:
        found = self._records.find(id)
        return found if found and self._counts(found.host) else None

    def all(self) -> list[Server]:
        return [each for each in self._records.all() if self._counts(each.host)]

    def readable(self) -> tuple[list[Server], list[UnreadableRecord]]:
        """One that cannot be read may be anybody's."""
        servers, unreadable = self._records.readable()
        return [each for each in servers if self._counts(each.host)], unreadable

    def host_of(self, id: ServerId) -> str | None:
        return self._records.host_of(id)

    def has_name(self, name: str) -> bool:
        return self._records.has_name(name)

    def put(self, server: Server) -> None:
        self._records.put(server)

    def remove(self, id: ServerId) -> None:
        self._records.remove(id)

    def lock(self, server: Server) -> AbstractContextManager[None]:
        return self._records.lock(server)

    def lock_name(self, name: str) -> AbstractContextManager[None]:
        return self._records.lock_name(name)

    def is_worked_on(self, server: Server) -> bool:
        return self._records.is_worked_on(server)
