"""Which templates each host uses, and who has pinned one: files of the sidecar.

    uses/<owner>.json      what a host uses now, and when it last used what
    pins/<template>.json

A cache may be shared by several hosts, and each has its own records of servers. So each host
writes a lease, which names the templates that it uses; they count until the lease ends.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millpond.errors import UnreadableRecord
from millpond.records import codec
from millpond.system import files
from millpond.templates.store import TemplateStore

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLease:
    owner: str
    at: datetime
    """When the host was last heard of."""
    in_use: frozenset[str] = frozenset()
    last_used: Mapping[str, datetime] = field(default_factory=dict)
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    by: str
    at: datetime
    schema: int = SCHEMA


class UsageLeases:
    def __init__(self, store: TemplateStore, owner: Callable[[], str], term: timedelta) -> None:
        """``term``: how long a host counts that is no longer heard of."""
        self._store = store
        self._owner = owner
        self._term = term
        self._uses = store.sidecar / "uses"
        self._pins = store.sidecar / "pins"

    def note(self, template: str) -> None:
        """A disk is about to be made from it. The template's lock is held, so that whoever
        wants to remove it sees this first. A second is as exact as it needs to be."""
        now = _now()
        with self._store.lock_uses(self._owner()):
            lease = self.own()
            if template in lease.in_use and lease.last_used.get(template) == now:
                return
            used = {**lease.last_used, template: now}
            self._write(replace(lease, at=now, in_use=lease.in_use | {template}, last_used=used))

    def renew(self, find_used: Callable[[], frozenset[str]]) -> None:
        """Write down what this host uses. It is looked up while the lease's lock is held: a
        server's record is older than its note, so that no note is lost between the two."""
        with self._store.lock_uses(self._owner()):
            used = find_used()
            now, known = _now(), self.own().last_used
            times = {name: known[name] for name in known if self._store.has_record(name)}
            times |= dict.fromkeys(used, now)
            lease = HostLease(owner=self._owner(), at=now, in_use=used, last_used=times)
            self._write(lease)

    def own(self) -> HostLease:
        found = self._read(self._path(self._owner()))
        return found or HostLease(owner=self._owner(), at=_now())

    def others(self) -> tuple[list[HostLease], tuple[str, ...]]:
        """Of the hosts that count; and, in words, those whose leases cannot be read: they may use
        any template."""
        oldest, owner = _now() - self._term, self._owner()
        found: list[HostLease] = []
        unreadable: list[str] = []
        for path in self._paths():
            try:
                lease = self._read(path)
            except UnreadableRecord as error:
                unreadable.append(f"perhaps host {path.stem}: {error}")
                continue
            if lease and lease.owner != owner and lease.at > oldest:
                found.append(lease)
        return found, tuple(unreadable)

    def hosts_using(self, template: str) -> tuple[str, ...]:
        """Other hosts, in words."""
        others, unreadable = self.others()
        using = (f"host {each.owner}" for each in others if template in each.in_use)
        return (*using, *unreadable)

    def pin(self, template: str, by: str) -> None:
        self._store.write(self._pin(template), codec.encode(Pin(by=by, at=_now())))

    def unpin(self, template: str) -> None:
        files.remove(self._pin(template))

    def pinned_by(self, template: str) -> str:
        """Empty if nobody has pinned it."""
        try:
            content = self._pin(template).read_bytes()
        except FileNotFoundError:
            return ""
        try:
            return codec.decode(content, Pin, self._pin(template), SCHEMA).by
        except UnreadableRecord as error:
            return f"somebody: {error}"

    def _paths(self) -> Iterator[Path]:
        for path in files.entries(self._uses):
            if path.suffix == ".json" and path.name[0] != ".":
                yield path

    def _read(self, path: Path) -> HostLease | None:
        try:
            return codec.decode(path.read_bytes(), HostLease, path, SCHEMA)
        except FileNotFoundError:
            return None

    def _write(self, lease: HostLease) -> None:
        self._store.write(self._path(lease.owner), codec.encode(lease))

    def _path(self, owner: str) -> Path:
        return self._uses / f"{owner}.json"

    def _pin(self, template: str) -> Path:
        return self._pins / f"{template}.json"


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
