"""Hosts that get no new servers, by the operator's word."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import StateNotWritable
from millpond.records import codec
from millpond.system import files
from millpond.system.locks import Locks

_LOCK = "disabled-hosts"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled:
    since: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    hosts: Mapping[str, Disabled] = field(default_factory=dict)
    """By their names."""
    schema: int = _SCHEMA


class DisabledHosts:
    """Kept in the state directory: Placement may lose what it was told."""

    def __init__(self, path: Path, locks: Locks) -> None:
        self._path = path
        self._locks = locks

    def read(self) -> Mapping[str, Disabled]:
        """Raises DamagedRecord: to take a host for enabled would be worse."""
        try:
            return codec.decode(self._path.read_bytes(), _File, self._path, _SCHEMA).hosts
        except FileNotFoundError:
            return {}

    def add(self, name: str, why: str) -> bool:
        """False if it was there."""
        with self._locks.hold(_LOCK):
            before = self.read()
            if name in before:
                return False
            since = datetime.now(UTC).isoformat(timespec="seconds")
            self._write({**before, name: Disabled(since=since, why=why)})
        return True

    def remove(self, name: str) -> bool:
        """False if it was not there."""
        with self._locks.hold(_LOCK):
            before = self.read()
            if name not in before:
                return False
            self._write({other: each for other, each in before.items() if other != name})
        return True

    def _write(self, hosts: Mapping[str, Disabled]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(self._path, codec.encode(_File(hosts=hosts)))
        except OSError as error:
            raise StateNotWritable(self._path, error.strerror or str(error)) from error
