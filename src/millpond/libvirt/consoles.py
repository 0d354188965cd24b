"""The logs of servers' consoles, on the host that the servers run on."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from millpond.errors import MillpondError, NoConsole, StateNotWritable, VolumeNotFound
from millpond.libvirt.pool import Pool
from millpond.model.names import ServerId
from millpond.system import streams

CONSOLE_LOG = "console.log"


class Consoles(Protocol):
    def make(self, id: ServerId) -> Path:
        """The path of the log, as the host knows it; the host will write to it."""
        ...

    def read(self, id: ServerId, name: str) -> bytes:
        """What the server of this name has printed so far. Raises NoConsole."""
        ...

    def remove(self, id: ServerId) -> None:
        """Only what the server has printed; nothing printed is no error."""
        ...


class ConsoleFiles:
    """A directory for each server, as Nova has it."""

    def __init__(self, instances: Path) -> None:
        self._instances = instances

    def make(self, id: ServerId) -> Path:
        path = self._instances / id
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error
        return path / CONSOLE_LOG

    def read(self, id: ServerId, name: str) -> bytes:
        path = self._instances / id / CONSOLE_LOG
        try:
            return path.read_bytes()
        except OSError as error:
            raise NoConsole(name, f"its log {path}: {error.strerror}") from error

    def remove(self, id: ServerId) -> None:
        """Only what we put there; anything else stays, and keeps the directory."""
        path = self._instances / id
        try:
            for each in path.glob(f"{CONSOLE_LOG}*"):  # virtlogd rotates it
                if each.is_file():
                    each.unlink(missing_ok=True)
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error


class ConsoleVolumes:
    """One directory for all, which is a pool: of a host whose files are not here. What virtlogd
    writes there, libvirt sees after a refresh."""

    def __init__(self, open_pool: Callable[[], Pool]) -> None:
        self._open_pool = open_pool

    def make(self, id: ServerId) -> Path:
        return Path(self._open_pool().path) / _log_name(id)

    def read(self, id: ServerId, name: str) -> bytes:
        try:
            pool = self._open_pool()
            pool.refresh()
            return b"".join(streams.plain(pool.pieces(_log_name(id))))
        except MillpondError as error:
            raise NoConsole(name, f"its log on the host: {error}") from error

    def remove(self, id: ServerId) -> None:
        pool = self._open_pool()
        pool.refresh()
        for name in pool.names():
            if name.startswith(_log_name(id)):
                with suppress(VolumeNotFound):
                    pool.delete(name)


def _log_name(id: ServerId) -> str:
    return f"{id}.{CONSOLE_LOG}"
