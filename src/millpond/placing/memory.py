"""What was last reported of each host, kept for the next command."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from millpond.config import HostSettings
from millpond.errors import StateNotWritable, UnreadableRecord
from millpond.records import codec
from millpond.system import files

_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Of one host."""

    uuid: str
    """Empty of one that has never answered."""
    at: float
    """Seconds since 1970, by this machine's clock."""
    settings: str
    """A digest of those that it was reported with."""
    gone: str = ""
    """Why it was not reported; empty if it answered."""
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the hosts that share a pool, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    hosts: Mapping[str, Reported] = field(default_factory=dict)
    schema: int = _SCHEMA


class Memory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self) -> Mapping[str, Reported]:
        """Nothing, if it cannot be read: it is reported anew then."""
        try:
            found = codec.decode(self._path.read_bytes(), _File, self._path, _SCHEMA)
        except (FileNotFoundError, UnreadableRecord):
            return {}
        return found.hosts

    def keep(self, hosts: Mapping[str, Reported]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(self._path, codec.encode(_File(hosts=hosts)))
        except OSError as error:
            raise StateNotWritable(self._path, error.strerror or str(error)) from error


def is_current(reported: Reported, settings: HostSettings, seconds: int) -> bool:
    """Also a clock that was set back makes it old."""
    age = time.time() - reported.at
    return reported.settings == digest_of(settings) and 0 <= age < seconds


def digest_of(settings: HostSettings) -> str:
    """The same in every process: sets have no order of their own."""
    plain = msgspec.json.encode(settings, order="deterministic", enc_hook=str)
    return hashlib.sha256(plain).hexdigest()
