"""Which templates stay and which go, and why: a decision without any deed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from millpond.model.template import Template

_LOW_WATERMARK = 0.9
"""Of max_bytes: what a cache that is too large is brought down to, so that the next template
does not begin all over again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    removes_unused: bool
    minimum_age: timedelta
    max_bytes: int
    """0 sets no bound."""

    def at_once(self) -> "Rules":
        """All that nothing uses, however young."""
        return replace(self, removes_unused=True, minimum_age=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """A template and what its fate depends on."""

    template: Template
    space: int
    """What the file system would have back."""
    last_used: datetime
    users: tuple[str, ...] = ()
    pinned_by: str = ""
    image_gone: bool = False
    """Its source has it no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVerdict:
    cached: Cached
    goes: bool
    reason: str
    goes_at: datetime | None = None
    """When it would go if nothing uses it until then."""


def decide(cached: Sequence[Cached], rules: Rules, now: datetime) -> list[TemplateVerdict]:
    """Age first; then, if what is left is larger than it may be, the least recently used."""
    verdicts = [_by_use_and_age(each, rules, now) for each in cached]
    return _by_size(verdicts, rules.max_bytes) if rules.max_bytes else verdicts


def _by_use_and_age(cached: Cached, rules: Rules, now: datetime) -> TemplateVerdict:
    since = f"unused since {cached.last_used:%Y-%m-%d %H:%M:%S}"
    old = cached.last_used + rules.minimum_age
    if cached.users:
        return TemplateVerdict(
            cached=cached, goes=False, reason=f"used by {', '.join(cached.users)}"
        )
    if cached.template.streams:
        return TemplateVerdict(cached=cached, goes=False, reason="it is still arriving")
    if cached.pinned_by:
        return TemplateVerdict(cached=cached, goes=False, reason=f"pinned by {cached.pinned_by}")
    if not rules.removes_unused:
        return TemplateVerdict(
            cached=cached, goes=False, reason=f"{since}; remove_unused_base_images is off"
        )
    if cached.image_gone:
        return TemplateVerdict(cached=cached, goes=True, reason="its image is gone", goes_at=now)
    return TemplateVerdict(cached=cached, goes=now >= old, reason=since, goes_at=max(now, old))


def _by_size(verdicts: Sequence[TemplateVerdict], bound: int) -> list[TemplateVerdict]:
    excess = sum(each.cached.space for each in verdicts if not each.goes) - bound
    if excess <= 0:
        return list(verdicts)
    excess += bound - int(bound * _LOW_WATERMARK)
    evicted = set()
    for each in sorted(verdicts, key=lambda each: each.cached.last_used):
        if excess > 0 and each.cached.space and _may_go(each):
            evicted.add(each.cached.template.volume)
            excess -= each.cached.space
    reason = "the cache is larger than max_bytes, and this was used least recently"
    return [
        replace(each, goes=True, reason=reason) if each.cached.template.volume in evicted else each
        for each in verdicts
    ]


def _may_go(verdict: TemplateVerdict) -> bool:
    cached = verdict.cached
    stays = cached.users or cached.pinned_by or cached.template.streams
    return not (verdict.goes or stays)
