"""What each host says of its use of the templates, and who has pinned one: beside the cache.

    uses/<owner>.json      what a host uses now, and when it last used what
    pins/<template>.json

A cache may be shared by several hosts, and the records of the others are not here. So each host
tells of its templates in a file of its own; its disks count as long as that file is young enough.
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
class HostMark:
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


class Marks:
    def __init__(self, store: TemplateStore, owner: Callable[[], str], lease: timedelta) -> None:
        """``lease``: how long a host counts that is no longer heard of."""
        self._store = store
        self._owner = owner
        self._lease = lease
        self._uses = store.sidecar / "uses"
        self._pins = store.sidecar / "pins"

    def note(self, template: str) -> None:
        """A disk is about to be made from it. The template's lock is held, so that whoever
        wants to remove it sees this first. A second is as exact as it needs to be."""
        now = _now()
        with self._store.lock_uses(self._owner()):
            mark = self.own()
            if template in mark.in_use and mark.last_used.get(template) == now:
                return
            used = {**mark.last_used, template: now}
            self._write(replace(mark, at=now, in_use=mark.in_use | {template}, last_used=used))

    def tell(self, find_used: Callable[[], frozenset[str]]) -> None:
        """Write down what this host uses. Found out while the mark's lock is held: a server's
        record is older than its note, so that no note is lost between the two."""
        with self._store.lock_uses(self._owner()):
            used = find_used()
            now, known = _now(), self.own().last_used
            times = {name: known[name] for name in known if self._store.has_record(name)}
            times |= dict.fromkeys(used, now)
            mark = HostMark(owner=self._owner(), at=now, in_use=used, last_used=times)
            self._write(mark)

    def own(self) -> HostMark:
        found = self._read(self._path(self._owner()))
        return found or HostMark(owner=self._owner(), at=_now())

    def others(self) -> tuple[list[HostMark], tuple[str, ...]]:
        """Of the hosts that count; and, in words, those whose marks cannot be read: they may use
        any template."""
        oldest, owner = _now() - self._lease, self._owner()
        found: list[HostMark] = []
        unreadable: list[str] = []
        for path in self._paths():
            try:
                mark = self._read(path)
            except UnreadableRecord as error:
                unreadable.append(f"perhaps host {path.stem}: {error}")
                continue
            if mark and mark.owner != owner and mark.at > oldest:
                found.append(mark)
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

    def _read(self, path: Path) -> HostMark | None:
        try:
            return codec.decode(path.read_bytes(), HostMark, path, SCHEMA)
        except FileNotFoundError:
            return None

    def _write(self, mark: HostMark) -> None:
        self._store.write(self._path(mark.owner), codec.encode(mark))

    def _path(self, owner: str) -> Path:
        return self._uses / f"{owner}.json"

    def _pin(self, template: str) -> Path:
        return self._pins / f"{template}.json"


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
