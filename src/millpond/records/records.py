"""Where the one authoritative record of each server is kept (B50)."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.errors import (
    DamagedRecord,
    FileNotReadable,
    NoSpace,
    StateNotWritable,
    UnreadableRecord,
)
from millpond.model.names import ServerId
from millpond.model.operation import Details, Operation
from millpond.model.server import SCHEMA, Server
from millpond.records import codec
from millpond.system import files
from millpond.system.locks import Locks

T = TypeVar("T")


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


_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose state directory this is; servers carry the id as a mark."""

    id: str
    machine: str
    schema: int = SCHEMA


class FileRecords:
    def __init__(self, state: Path, locks: Locks) -> None:
        self._directory = state / "servers"
        self._owner_file = state / "owner.json"
        self._locks = locks

    @property
    def owner(self) -> str:
        """The id in the state directory; made when it is first asked for."""
        if not self._owner_file.exists():
            with self._locks.hold("owner"):
                if not self._owner_file.exists():
                    made = Owner(id=str(uuid.uuid4()), machine=_machine_id())
                    self._write(self._owner_file, codec.encode(made))
        found = codec.decode(self._owner_file.read_bytes(), Owner, self._owner_file, SCHEMA)
        if found.machine and found.machine != (_machine_id() or found.machine):
            raise DamagedRecord(
                self._owner_file, "this state directory was made on another machine"
            )
        return found.id

    def find(self, id: ServerId) -> Server | None:
        """What cannot be a file's name is no server's id."""
        is_name = files.is_file_name(f"{id}.json")
        return self._find_at(self._path(id), codec.decode_server) if is_name else None

    def all(self) -> list[Server]:
        servers, unreadable = self.readable()
        if unreadable:
            raise unreadable[0]
        return servers

    def readable(self) -> tuple[list[Server], list[UnreadableRecord]]:
        """For showing and finding: the servers whose records can be read, and what is wrong with
        the others. Whoever decides by what is *not* there asks for all."""
        servers: list[Server] = []
        unreadable: list[UnreadableRecord] = []
        for path in self._paths():
            try:
                if server := self._find_at(path, codec.decode_server):
                    servers.append(server)
            except UnreadableRecord as error:
                unreadable.append(error)
        return sorted(servers, key=lambda server: (server.name, server.id)), unreadable

    def host_of(self, id: ServerId) -> str | None:
        found = self.find(id)
        return found.host if found else None

    def has_name(self, name: str) -> bool:
        return any(self._find_at(each, codec.decode_name) == name for each in self._paths())

    def put(self, server: Server) -> None:
        self._write(self._path(server.id), codec.encode_server(server))

    def remove(self, id: ServerId) -> None:
        with self._writing(self._directory):
            self._path(id).unlink(missing_ok=True)
            files.sync_directory(self._directory)

    def lock(self, server: Server) -> AbstractContextManager[None]:
        return self._locks.hold_now(_lock_of(server), f"server {server.name!r}")

    def lock_name(self, name: str) -> AbstractContextManager[None]:
        return self._locks.hold(f"server-name:{name}")

    def is_worked_on(self, server: Server) -> bool:
        return self._locks.is_held(_lock_of(server))

    def _paths(self) -> Iterator[Path]:
        found = files.entries(self._directory)
        return (path for path in found if path.suffix == ".json" and path.name[0] != ".")

    def _path(self, id: ServerId) -> Path:
        return self._directory / f"{id}.json"

    def _find_at(self, path: Path, decode: Callable[[bytes, Path], T]) -> T | None:
        try:
            return decode(path.read_bytes(), path)
        except FileNotFoundError:  # deleted while we were listing
            return None
        except OSError as error:
            raise FileNotReadable(path, error.strerror or str(error)) from error

    def _write(self, path: Path, content: bytes) -> None:
        with self._writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            files.write_atomically(path, content)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            with files.explaining_lack_of_space(path):
                yield
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error


def _lock_of(server: Server) -> str:
    return f"server:{server.id}"


def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text().strip()
    except OSError:
        return ""
