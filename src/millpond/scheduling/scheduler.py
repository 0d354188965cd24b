"""Where a server goes: query, candidates, what each would do, weights, the first with room."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from millpond.errors import (
    ExceedsHost,
    HostProblem,
    NetworkNotFound,
    NoRoom,
    NoSuchHost,
    PlacementBadRequest,
    UnfitHost,
)
from millpond.model.names import did_you_mean
from millpond.model.server import Server
from millpond.scheduling.decision import Decision, HostVerdict, Reasons, State
from millpond.scheduling.placement import Allocations, Placement, Stock
from millpond.scheduling.providers import DISK, MEMORY, HostProviders, Hosts, allocations_for
from millpond.scheduling.query import (
    ALWAYS,
    PlacementQuery,
    SchedulingRequest,
    placement_query,
    require_image_type_support,
)
from millpond.scheduling.reporter import Reporter
from millpond.scheduling.weigh import HostWeights, Multipliers, weigh

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Stocks = Mapping[str, Stock]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What a host would do with a request."""

    server: Server
    """As it would be there."""
    native: bool
    """The image's format is used as it is."""
    cached: bool
    """The template is there already."""


Plan = Callable[[str], HostPlan]
"""By the host's name; asked of candidates only. It raises HostProblem where the host does not
answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A host of ours that Placement offers."""

    providers: HostProviders
    plan: HostPlan
    allocations: Allocations
    """Placement offers some pools that serve; the host's own plan says which."""


class Scheduler:
    def __init__(
        self,
        placement: Placement,
        reporter: Reporter,
        multipliers: Multipliers,
        *,
        filters_image_types: bool,
    ) -> None:
        """``filters_image_types``: filter_hosts_by_image_type_support (B33)."""
        self.placement = placement
        self.reporter = reporter
        self._multipliers = multipliers
        first = (require_image_type_support,) if filters_image_types else ()
        self._filters = (*first, *ALWAYS)

    def place(self, request: SchedulingRequest, plan: Plan, take: Callable[[str], T]) -> T:
        """What ``take`` answers of the best host that still has room, which it finds out;
        NoValidHost if there is none."""
        decision = self.decide(request, plan)
        for host in decision.choices:
            try:
                return take(host)
            except (NoRoom, PlacementBadRequest) as error:
                LOG.debug("%s does not fit on %s: %s", request.server, host, error)
                decision = decision.without(host, error.reason)
        raise self._reconsider(decision).no_valid_host()

    def decide(
        self, request: SchedulingRequest, plan: Plan, *, everything: bool = False
    ) -> Decision:
        """Nothing is claimed. Why other hosts do not fit is looked for if none does, or if
        ``everything`` is to be shown."""
        decision = self._decide(request, plan, self.reporter.report_if_due(), everything)
        if decision.choices or not decision.has_unreported_hosts:
            return decision
        self.reporter.report(prove=False)  # Placement has lost what it was told
        return self._decide(request, plan, self.reporter.providers(), everything)

    def query(self, request: SchedulingRequest) -> PlacementQuery:
        """On whatever host."""
        return placement_query(request, self._filters)

    def _decide(
        self, request: SchedulingRequest, plan: Plan, hosts: Hosts, everything: bool
    ) -> Decision:
        """On one of these ``hosts``: no other is ever chosen."""
        query = _within(self.query(request), request, hosts)
        found, stocks = self._candidates(request, query)
        asked = {
            name: _ask(name, each, plan, stocks)
            for name, each in hosts.items()
            if each.host in found and name not in request.avoid
        }
        fits = {name: each for name, each in asked.items() if isinstance(each, _Offer)}
        weights = {name: _weights(each, stocks) for name, each in fits.items()}
        scores = weigh(weights, self._multipliers)
        ranked = [
            HostVerdict(host=name, state=State.FITS, score=score.total, parts=score.parts)
            for name, score in scores.items()
        ]
        rest = [each for each in asked.values() if isinstance(each, HostVerdict)]
        if everything or not ranked:
            rest += Reasons(self.placement, hosts).of(request, query, asked.keys())
        return Decision(
            request=request,
            query=query,
            choices=tuple(scores),
            verdicts=(*ranked, *sorted(rest, key=lambda each: each.host)),
        )

    def _reconsider(self, decision: Decision) -> Decision:
        """What Placement says of a claim that came too late names no amounts."""
        late = {each.host for each in decision.verdicts if each.state is State.LATE}
        if not late:
            return decision
        others = {each.host for each in decision.verdicts} - late
        reasons = Reasons(self.placement, self.reporter.providers())
        verdicts = reasons.of(decision.request, decision.query, others)
        return decision.with_verdicts(each for each in verdicts if each.host in late)

    def _candidates(
        self, request: SchedulingRequest, query: PlacementQuery
    ) -> tuple[set[str], Stocks]:
        if not request.purpose.stays:
            found = self.placement.candidates(query.params())
            return found.hosts, found.provider_summaries
        # It has its resources already, so only its host's traits count.
        required = {"required": query.traits} if query.traits else {}
        stays = self.placement.providers.find(in_tree=query.in_tree, **required)
        return {each.uuid for each in stays} & {query.in_tree}, {}


def _within(query: PlacementQuery, request: SchedulingRequest, hosts: Hosts) -> PlacementQuery:
    if not request.host and not request.purpose.stays:
        return query
    if request.host not in hosts:
        raise NoSuchHost(request.host, did_you_mean(hosts, request.host))
    return query.within(hosts[request.host].host)


def _ask(name: str, providers: HostProviders, plan: Plan, stocks: Stocks) -> _Offer | HostVerdict:
    """A verdict if something speaks against it all the same."""
    try:
        planned = plan(name)
    except HostProblem as error:
        return HostVerdict(host=name, state=State.UNREACHABLE, reason=str(error))
    except (NetworkNotFound, ExceedsHost, UnfitHost) as error:
        return HostVerdict(host=name, state=State.LACKS, reason=str(error))
    allocations = allocations_for(planned.server, providers)
    for pool, uuid in providers.pools.items():
        # A pool that did not have to be looked at for the query is left to the claim.
        if uuid in allocations and uuid in stocks:
            needed, free = allocations[uuid][DISK], stocks[uuid].resources[DISK].free
            if free < needed:
                reason = f"pool {pool} has {free} of {needed} GiB"
                return HostVerdict(host=name, state=State.NO_ROOM, reason=reason)
    return _Offer(providers=providers, plan=planned, allocations=allocations)


def _weights(offer: _Offer, stocks: Stocks) -> HostWeights:
    host = offer.providers.host
    pools = [stocks[uuid] for uuid in offer.allocations if uuid in stocks and uuid != host]
    return HostWeights(
        native=offer.plan.native,
        cached=offer.plan.cached,
        disk=sum(each.resources[DISK].free for each in pools),
        memory=stocks[host].resources[MEMORY].free if host in stocks else 0,
    )
