"""Records as JSON files, one a server, under the state directory."""

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import DamagedRecord, FileNotReadable, StateNotWritable, UnreadableRecord
from millpond.model.names import ServerId
from millpond.model.server import SCHEMA, Server
from millpond.records import codec
from millpond.system import files
from millpond.system.locks import Locks

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
        return self._find_at(self._path(id)) if files.is_file_name(f"{id}.json") else None

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
                if server := self._find_at(path):
                    servers.append(server)
            except UnreadableRecord as error:
                unreadable.append(error)
        return sorted(servers, key=lambda server: (server.name, server.id)), unreadable

    def host_of(self, id: ServerId) -> str | None:
        found = self.find(id)
        return found.host if found else None

    def has_name(self, name: str) -> bool:
        return any(each.name == name for each in self.all())

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

    def _find_at(self, path: Path) -> Server | None:
        try:
            return self._read(path)
        except FileNotFoundError:  # deleted while we were listing
            return None
        except OSError as error:
            raise FileNotReadable(path, error.strerror or str(error)) from error

    def _read(self, path: Path) -> Server:
        return codec.decode_server(path.read_bytes(), path)

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
