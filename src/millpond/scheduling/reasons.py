"""Why hosts do not serve a query: asked for only when somebody wants to know."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from millpond.scheduling.decision import State, Verdict
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import DISK, MEMORY, VCPU
from millpond.scheduling.query import PlacementQuery
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.traits import DISABLED, IMAGE_TYPES
from millpond.scheduling.values import Provider, Summary

_LOOKED_AT = 100
"""Hosts without anything free, each of which takes two calls."""


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
    def __init__(self, placement: Placement, ours: Mapping[str, str]) -> None:
        self._placement = placement
        self._ours = ours

    def of(
        self, request: SchedulingRequest, query: PlacementQuery, besides: Collection[str]
    ) -> list[Verdict]:
        """Of every host of this Placement but those ``besides``."""
        providers = self._placement.providers.find()
        roots = [each for each in providers if each.parent_provider_uuid is None]
        wanted = [each for each in roots if each.name not in besides]
        verdicts = [_verdict(each, request, query) for each in self._known(wanted)]
        reported = {each.name for each in roots}
        missing = self._ours.keys() - reported - set(besides)
        unheard = [
            Verdict(
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
        is_ours = self._ours.get(root.name) == root.uuid
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


def _verdict(host: _Known, request: SchedulingRequest, query: PlacementQuery) -> Verdict:
    lacks = query.required - host.traits
    state, reason = _finding(host, request, query, lacks)
    return Verdict(
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
