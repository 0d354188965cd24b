"""Request to host: query, candidates, weigh, claim."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from millpond.errors import HostProblem, NoRoom, NoSuchHost, PlacementMisunderstands
from millpond.model.server import Server
from millpond.scheduling.decision import Decision, State, Verdict
from millpond.scheduling.filters import ALWAYS, placement_query, require_image_type_support
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import DISK, MEMORY, HostProviders, allocations_for
from millpond.scheduling.query import PlacementQuery
from millpond.scheduling.reasons import Reasons
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.values import Allocations, Stock
from millpond.scheduling.weighers import Multipliers, Standing, weigh

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Stocks = Mapping[str, Stock]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    filters_image_types: bool
    """filter_hosts_by_image_type_support (B33)."""
    multipliers: Multipliers


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
        self, placement: Placement, policy: SchedulingPolicy, hosts: Mapping[str, HostProviders]
    ) -> None:
        """``hosts``: ours, by their names. No other is ever chosen."""
        self._placement = placement
        self._policy = policy
        self._hosts = hosts
        self._names = {each.host: name for name, each in hosts.items()}
        self._reasons = Reasons(placement, {name: each.host for name, each in hosts.items()})

    def query(self, request: SchedulingRequest) -> PlacementQuery:
        first = (require_image_type_support,) if self._policy.filters_image_types else ()
        query = placement_query(request, (*first, *ALWAYS))
        if not request.host and not request.purpose.stays:
            return query
        if request.host not in self._hosts:
            raise NoSuchHost(request.host)
        return query.within(self._hosts[request.host].host)

    def decide(
        self, request: SchedulingRequest, plan: Plan, *, everything: bool = False
    ) -> Decision:
        """Nothing is written. Why other hosts do not fit is looked for if none does, or if
        ``everything`` is to be shown."""
        query = self.query(request)
        found, stocks = self._candidates(request, query)
        asked = {name: self._ask(name, plan, stocks) for name in self._ours(found, request)}
        fits = {name: each for name, each in asked.items() if isinstance(each, _Offer)}
        weights = {name: _weights(each, stocks) for name, each in fits.items()}
        scores = weigh(weights, self._policy.multipliers)
        ranked = [
            Verdict(host=name, state=State.FITS, score=score.total, parts=score.parts)
            for name, score in scores.items()
        ]
        rest = [each for each in asked.values() if isinstance(each, Verdict)]
        if everything or not ranked:
            rest += self._reasons.of(request, query, asked.keys())
        return Decision(
            request=request,
            query=query,
            choices=tuple(scores),
            verdicts=(*ranked, *sorted(rest, key=lambda each: each.host)),
        )

    def place(self, decision: Decision, take: Callable[[str], T]) -> T:
        """What ``take`` answers of the best host that still has room, which it finds out;
        NoValidHost if there is none."""
        for host in decision.choices:
            try:
                return take(host)
            except (NoRoom, PlacementMisunderstands) as error:
                LOG.debug("%s does not fit on %s: %s", decision.request.server, host, error)
                decision = decision.lost(host, error.reason)
        raise self.reconsidered(decision).no_valid_host()

    def reconsidered(self, decision: Decision) -> Decision:
        """What Placement says of a claim that came too late names no amounts."""
        late = {each.host for each in decision.verdicts if each.state is State.LATE}
        if not late:
            return decision
        others = {each.host for each in decision.verdicts} - late
        reasons = self._reasons.of(decision.request, decision.query, others)
        return decision.reconsidered(each for each in reasons if each.host in late)

    def _candidates(
        self, request: SchedulingRequest, query: PlacementQuery
    ) -> tuple[set[str], Stocks]:
        if not request.purpose.stays:
            found = self._placement.candidates(query.params())
            return found.hosts, found.provider_summaries
        # It has its resources already, so only its host's traits count.
        required = {"required": query.traits} if query.traits else {}
        stays = self._placement.providers.find(in_tree=query.in_tree, **required)
        return {each.uuid for each in stays} & {query.in_tree}, {}

    def _ours(self, found: set[str], request: SchedulingRequest) -> Iterator[str]:
        for uuid in found:
            name = self._names.get(uuid)
            if name is not None and name not in request.avoid:
                yield name

    def _ask(self, name: str, plan: Plan, stocks: Stocks) -> _Offer | Verdict:
        """A verdict if something speaks against it all the same."""
        providers = self._hosts[name]
        try:
            planned = plan(name)
        except HostProblem as error:
            return Verdict(host=name, state=State.UNREACHABLE, reason=str(error))
        allocations = allocations_for(planned.server, providers)
        for pool, uuid in providers.pools.items():
            # A pool that did not have to be looked at for the query is left to the claim.
            if uuid in allocations and uuid in stocks:
                needed, free = allocations[uuid][DISK], stocks[uuid].resources[DISK].free
                if free < needed:
                    reason = f"pool {pool} has {free} of {needed} GiB"
                    return Verdict(host=name, state=State.NO_ROOM, reason=reason)
        return _Offer(providers=providers, plan=planned, allocations=allocations)


def _weights(offer: _Offer, stocks: Stocks) -> Standing:
    host = offer.providers.host
    pools = [stocks[uuid] for uuid in offer.allocations if uuid in stocks and uuid != host]
    return Standing(
        native=offer.plan.native,
        cached=offer.plan.cached,
        disk=sum(each.resources[DISK].free for each in pools),
        memory=stocks[host].resources[MEMORY].free if host in stocks else 0,
    )
