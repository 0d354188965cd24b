"""ImageCacheManager: removes the templates that nothing uses, and says why the others stay."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from millpond.errors import (
    Busy,
    CacheFull,
    ImageNotFound,
    MillpondError,
    NoSpace,
    TemplateNotFound,
)
from millpond.images.source import ImageSource
from millpond.model.names import ImageId
from millpond.model.sizes import format_size
from millpond.model.template import Template
from millpond.templates.leases import HostLease, UsageLeases
from millpond.templates.store import TemplateStore
from millpond.templates.verdicts import Cached, Rules, Verdict, decide

LOG = logging.getLogger(__name__)


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

    def survey(self, rules: Rules) -> list[Verdict]:
        """What would become of each template. Nothing is changed."""
        return self._decided(rules, self._find_uses())

    def prune(self, rules: Rules) -> list[Verdict]:
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

    def _evict(self, rules: Rules) -> list[Verdict]:
        uses = self._renew_lease()
        going = [each for each in self._decided(rules, uses) if each.goes]
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

    def _still_going(self, rules: Rules, before: Uses, held: Collection[str]) -> list[Verdict]:
        """Asked again now that nobody can begin to use them. All records are read once, however
        many templates there are."""
        now = self._find_promised()
        both = {**before.by_template, **now.by_template}
        uses = Uses(by_template=both, unreadable=before.unreadable + now.unreadable)
        decided = self._decided(rules, uses)
        return [each for each in decided if each.goes and each.cached.template.volume in held]

    def _remove(self, going: Sequence[Verdict]) -> list[Verdict]:
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

    def _decided(self, rules: Rules, uses: Uses) -> list[Verdict]:
        now = datetime.now(UTC)
        others, unreadable = self._leases.others()
        every = replace(uses, unreadable=uses.unreadable + unreadable)
        known = _Known(uses=every, own=self._leases.own(), others=tuple(others))
        return decide([self._cached(each, known) for each in self._store.all()], rules, now)

    def _cached(self, template: Template, known: "_Known") -> Cached:
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


def _names(verdicts: Sequence[Verdict]) -> list[str]:
    return sorted(each.cached.template.volume for each in verdicts)
