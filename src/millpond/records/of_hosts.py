"""The records of the servers of some hosts, among those of all."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from millpond.errors import UnreadableRecord
from millpond.model.names import ServerId
from millpond.model.server import Server
from millpond.records.records import Records


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
