"""What became of a request: a verdict for every host, and why hosts do not serve."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from millpond.errors import NoValidHost, Tool
from millpond.scheduling.placement import Placement, Provider, Summary
from millpond.scheduling.providers import DISK, MEMORY, VCPU, Hosts
from millpond.scheduling.query import PlacementQuery, Purpose, SchedulingRequest
from millpond.scheduling.traits import DISABLED, IMAGE_TYPES

_LISTED = 10
"""Hosts in one message; explain shows all."""
_LOOKED_AT = 100
"""Hosts without anything free, each of which takes two calls."""


class State(StrEnum):
    FITS = "fits"
    LACKS = "lacks"
    NO_ROOM = "no room"
    LATE = "late"
    """There was room when Placement was asked, and none any more when it was to be claimed."""
    DISABLED = "disabled"
    UNREACHABLE = "unreachable"
    FOREIGN = "foreign"
    """It fits, and is no host of ours."""
    NOT_ASKED = "not asked"
    """Another host was asked for, or this one is to be avoided."""
    NOT_REPORTED = "not reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVerdict:
    host: str
    state: State
    reason: str = ""
    lacks: frozenset[str] = frozenset()
    """Traits."""
    reports_image_types: bool = True
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    request: SchedulingRequest
    query: PlacementQuery
    choices: tuple[str, ...]
    """Hosts of ours, best first."""
    verdicts: tuple[HostVerdict, ...]
    """Those of the choices first."""

    @property
    def has_unreported_hosts(self) -> bool:
        return any(each.state is State.NOT_REPORTED for each in self.verdicts)

    def without(self, host: str, reason: str) -> Self:
        """Somebody else was faster."""
        left = tuple(each for each in self.choices if each != host)
        late = HostVerdict(host=host, state=State.LATE, reason=reason)
        return replace(self, choices=left).with_verdicts([late])

    def with_verdicts(self, verdicts: Iterable[HostVerdict]) -> Self:
        anew = {each.host: each for each in verdicts}
        return replace(self, verdicts=tuple(anew.get(each.host, each) for each in self.verdicts))

    def no_valid_host(self) -> NoValidHost:
        return NoValidHost(self._why(), _listed(self.verdicts), self._advice())

    def _why(self) -> str:
        if not self.verdicts:
            return "no host has been reported to Placement"
        asked = self.query.required | self.query.root_required
        meant = [each for each in self.verdicts if each.state is not State.NOT_ASKED]
        nowhere = [each for each in sorted(asked) if all(each in v.lacks for v in meant)]
        if nowhere:
            return f"none has {' and '.join(nowhere)}"
        return "none has all that is asked for"

    def _advice(self) -> str:
        silent = [each.host for each in self.verdicts if not each.reports_image_types]
        if silent and not self.query.required.isdisjoint(IMAGE_TYPES.values()):
            return (
                f"hosts are filtered by image types, and {_and_more(silent)} reported none at "
                f"all: '{Tool.REPORT_HOSTS}' reports those of our hosts, others need a "
                "Nova that does; set filter_hosts_by_image_type_support = false until all have"
            )
        if self.request.purpose.moves:
            return f"'{Tool.SERVER} migrate SERVER --dry-run' shows every host and what it lacks"
        if self.request.purpose is Purpose.EVACUATE:
            return (
                "it goes to a host that shares the pools of its disks, or comes back with its own"
            )
        return f"'{Tool.EXPLAIN}' shows every host and what it lacks"


def _listed(verdicts: Iterable[HostVerdict]) -> tuple[str, ...]:
    each = [f"{verdict.host}: {verdict.reason or verdict.state}" for verdict in verdicts]
    rest = len(each) - _LISTED
    return (*each[:_LISTED], f"and {rest} more") if rest > 0 else tuple(each)


def _and_more(names: list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A host with its pools."""

    name: str
    is_ours: bool
    traits: frozenset[str]
    free: Mapping[str, int]
    """Of the host itself."""
    pools: tuple[Summary, ...]
    """All providers of its tree that have disks, and those that it shares."""


class Reasons:
    """Asked for only when somebody wants to know."""

    def __init__(self, placement: Placement, ours: Hosts) -> None:
        self._placement = placement
        self._ours = ours

    def of(
        self, request: SchedulingRequest, query: PlacementQuery, besides: Collection[str]
    ) -> list[HostVerdict]:
        """Of every host of this Placement but those ``besides``."""
        providers = self._placement.providers.find()
        roots = [each for each in providers if each.parent_provider_uuid is None]
        wanted = [each for each in roots if each.name not in besides]
        verdicts = [_verdict(each, request, query) for each in self._known(wanted)]
        reported = {each.name for each in roots}
        missing = self._ours.keys() - reported - set(besides)
        unheard = [
            HostVerdict(
                host=each,
                state=State.NOT_REPORTED,
                reason="it has not been reported to Placement",
                lacks=query.required,
                reports_image_types=False,
            )
            for each in missing
        ]
        return [*verdicts, *unheard]

    def _known(self, roots: Iterable[Provider]) -> Iterator[_Known]:
        """Two calls tell of all hosts that have anything free."""
        summaries: dict[str, Summary] = {}
        for resource in (VCPU, DISK):
            summaries |= self._placement.with_free({resource: 1})
        trees: dict[str, list[Summary]] = {}
        for each in summaries.values():
            trees.setdefault(each.root_provider_uuid, []).append(each)
        unknown = 0
        for root in roots:
            summary = summaries.get(root.uuid)
            unknown += summary is None
            if summary is None and unknown > _LOOKED_AT:
                continue
            if known := self._host(root, summary, trees):
                yield known

    def _host(
        self, root: Provider, summary: Summary | None, trees: Mapping[str, list[Summary]]
    ) -> _Known | None:
        ours = self._ours.get(root.name)
        is_ours = ours is not None and ours.host == root.uuid
        if summary is None:  # nothing is free
            if not is_ours and VCPU not in self._placement.providers.inventories(root.uuid):
                return None
            traits, free = self._placement.providers.traits(root.uuid), {}
        else:
            if VCPU not in summary.resources:
                return None  # a pool that is shared, or something else's
            traits = summary.traits
            free = {name: usage.free for name, usage in summary.resources.items()}
        pools = [each for each in trees.get(root.uuid, ()) if DISK in each.resources]
        if not pools:
            shared = self._placement.providers.aggregates(root.uuid)
            pools = [each for uuid in sorted(shared) for each in trees.get(uuid, ())]
        return _Known(
            name=root.name, is_ours=is_ours, traits=traits, free=free, pools=tuple(pools)
        )


def _verdict(host: _Known, request: SchedulingRequest, query: PlacementQuery) -> HostVerdict:
    lacks = query.required - host.traits
    state, reason = _finding(host, request, query, lacks)
    return HostVerdict(
        host=host.name,
        state=state,
        reason=reason,
        lacks=lacks,
        reports_image_types=not host.traits.isdisjoint(IMAGE_TYPES.values()),
    )


def _finding(
    host: _Known, request: SchedulingRequest, query: PlacementQuery, lacks: frozenset[str]
) -> tuple[State, str]:
    """The first thing that speaks against it, from the most lasting to the most passing."""
    if lacks:
        return State.LACKS, f"it lacks {', '.join(sorted(lacks))}"
    if DISABLED in host.traits & query.forbidden:
        return State.DISABLED, "it is disabled"
    if unwanted := host.traits & query.forbidden:
        return State.LACKS, f"it has {', '.join(sorted(unwanted))}, which is forbidden"
    if request.host not in ("", host.name) or host.name in request.avoid:
        return State.NOT_ASKED, "it is not to be this one"
    if missing := _missing(host, query):
        return State.NO_ROOM, missing
    if not host.is_ours:
        return State.FOREIGN, "it would fit, and is no host of this configuration"
    return State.NO_ROOM, "all of it together does not fit"


def _missing(host: _Known, query: PlacementQuery) -> str:
    asked = {VCPU: query.vcpus, MEMORY: query.memory}
    for name, amount in asked.items():
        if (free := host.free.get(name, 0)) < amount:
            return f"{free} of {amount} {name} are free"
    fitting = [each for each in host.pools if query.root_required <= each.traits]
    disks = ((fitting, query.root, "root disk"), (host.pools, query.blank, "blank disks"))
    for pools, amount, what in disks:
        free = max((each.resources[DISK].free for each in pools), default=0)
        if free < amount:
            return f"{free} of {amount} {DISK} are free for the {what}"
    return ""
