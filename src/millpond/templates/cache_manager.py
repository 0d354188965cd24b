"""ImageCacheManager: removes the templates that nothing uses, and says why the others stay. Which
host uses what is written next to the cache, as leases; an operator's word, as pins."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millpond.errors import (
    Busy,
    CacheFull,
    ImageNotFound,
    MillpondError,
    NoSpace,
    TemplateNotFound,
    UnreadableRecord,
)
from millpond.images.source import ImageSource
from millpond.model.names import ImageId
from millpond.model.sizes import format_size
from millpond.model.template import Template
from millpond.records import codec
from millpond.system import files
from millpond.templates.store import TemplateStore
from millpond.templates.verdicts import Cached, Rules, TemplateVerdict, decide

LOG = logging.getLogger(__name__)

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
    """Files of the sidecar: ``uses/<owner>.json``, what a host uses now and when it last used
    what; ``pins/<template>.json``.

    A cache may be shared by several hosts, and each has its own records of servers. So each
    writes a lease, which names the templates that it uses; they count until the lease ends.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Who uses which template on this host, in words."""

    by_template: Mapping[str, tuple[str, ...]]
    unreadable: tuple[str, ...] = field(default=())
    """Disks whose backing is not known: it could be any template."""

    def of(self, template: str) -> tuple[str, ...]:
        return self.by_template.get(template, ()) + self.unreadable


class ImageCacheManager:
    def __init__(
        self,
        store: TemplateStore,
        leases: UsageLeases,
        images: ImageSource,
        *,
        find_uses: Callable[[], Uses],
        find_promised: Callable[[], Uses],
        remove: Callable[[Template], None],
        cleanup: Callable[[], None],
    ) -> None:
        """``find_uses``: from records, domains, volumes and legacy disks, without starting a
        program; ``find_promised``: from records alone, which name the templates of a server before
        it takes their locks; ``cleanup`` finishes or undoes what was interrupted."""
        self._store = store
        self._leases = leases
        self._images = images
        self._find_uses = find_uses
        self._find_promised = find_promised
        self._remove_template = remove
        self._cleanup = cleanup

    def survey(self, rules: Rules) -> list[TemplateVerdict]:
        """What would become of each template. Nothing is changed."""
        return self._decide(rules, self._find_uses())

    def prune(self, rules: Rules) -> list[TemplateVerdict]:
        """Remove what nothing uses; those that went. Whoever holds a template's lock is making
        it or about to use it: that one stays."""
        self._cleanup()
        return self._evict(rules)

    def make_room(self, rules: Rules, needed: int) -> None:
        """For a template that is about to enter the cache: by size alone, whatever their age.
        Raises CacheFull if what is used or pinned leaves no room."""
        bound = rules.max_bytes
        if not bound or self._store.space() + needed <= bound:
            return
        if needed < bound:
            self._evict(replace(rules, removes_unused=False, max_bytes=bound - needed))
        if (taken := self._store.space()) + needed > bound:
            raise CacheFull(*map(format_size, (needed, bound, taken)))

    def _evict(self, rules: Rules) -> list[TemplateVerdict]:
        uses = self._renew_lease()
        going = [each for each in self._decide(rules, uses) if each.goes]
        with ExitStack() as locks:
            held = {each for each in _names(going) if self._try_lock(locks, each)}
            if not held:
                return []
            return self._remove(self._still_going(rules, uses, held))

    def pin(self, name: str, by: str) -> None:
        """It stays, whether it is used or not."""
        with self._store.lock(name):
            if self._store.find(name) is None:
                raise TemplateNotFound(name)
            self._leases.pin(name, by)

    def unpin(self, name: str) -> None:
        self._leases.unpin(name)

    def _renew_lease(self) -> Uses:
        """What this host uses; other hosts read it from our lease. Only the records are read while
        servers wait to write to it. On a file system that is full the lease stays as it is: it has
        what was noted when disks were made."""
        uses, promised = self._find_uses(), self._find_promised
        try:
            self._leases.renew(lambda: frozenset({*uses.by_template, *promised().by_template}))
        except NoSpace as error:
            LOG.warning("other hosts are not told what is used here: %s", error)
        return uses

    def _try_lock(self, locks: ExitStack, name: str) -> bool:
        with suppress(Busy):
            locks.enter_context(self._store.lock_now(name))
            return True
        return False

    def _still_going(
        self, rules: Rules, before: Uses, held: Collection[str]
    ) -> list[TemplateVerdict]:
        """Asked again now that nobody can begin to use them. All records are read once, however
        many templates there are."""
        now = self._find_promised()
        both = {**before.by_template, **now.by_template}
        uses = Uses(by_template=both, unreadable=before.unreadable + now.unreadable)
        decided = self._decide(rules, uses)
        return [each for each in decided if each.goes and each.cached.template.volume in held]

    def _remove(self, going: Sequence[TemplateVerdict]) -> list[TemplateVerdict]:
        """One that cannot go, because nobody answers where it leads, say, keeps no other."""
        failed: list[MillpondError] = []
        for each in going:
            try:
                self._remove_template(each.cached.template)
                LOG.info("template %s went: %s", each.cached.template.volume, each.reason)
            except MillpondError as error:
                LOG.warning("template %s stays for now: %s", each.cached.template.volume, error)
                failed.append(error)
        if failed:
            raise failed[0]
        return list(going)

    def _decide(self, rules: Rules, uses: Uses) -> list[TemplateVerdict]:
        now = datetime.now(UTC)
        others, unreadable = self._leases.others()
        every = replace(uses, unreadable=uses.unreadable + unreadable)
        known = _Known(uses=every, own=self._leases.own(), others=tuple(others))
        return decide([self._describe(each, known) for each in self._store.all()], rules, now)

    def _describe(self, template: Template, known: "_Known") -> Cached:
        name = template.volume
        users = known.users(name)
        ask = not users and not known.is_shared(name)
        return Cached(
            template=template,
            space=self._store.space(name),
            last_used=max([datetime.fromisoformat(template.created), *known.times(name)]),
            users=users,
            pinned_by=self._leases.pinned_by(name),
            image_gone=ask and self._is_gone(template.image),
        )

    def _is_gone(self, image: ImageId) -> bool:
        """Only if its source says so: one that does not answer has lost nothing."""
        try:
            if image:  # a blank disk's template has none
                self._images.describe(image)
        except ImageNotFound:
            return True
        except MillpondError as error:
            LOG.debug("whether image %s is still there is not known: %s", image, error)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """All that is known of the use of templates at one moment."""

    uses: Uses
    own: HostLease
    others: tuple[HostLease, ...]

    def users(self, name: str) -> tuple[str, ...]:
        hosts = tuple(f"host {each.owner}" for each in self.others if name in each.in_use)
        return self.uses.of(name) + hosts

    def times(self, name: str) -> list[datetime]:
        leases = (self.own, *self.others)
        return [each.last_used[name] for each in leases if name in each.last_used]

    def is_shared(self, name: str) -> bool:
        """Another host's catalogue may have its image."""
        return any(name in each.last_used for each in self.others)


def _names(verdicts: Sequence[TemplateVerdict]) -> list[str]:
    return sorted(each.cached.template.volume for each in verdicts)
