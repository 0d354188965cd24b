"""Request to host: query, candidates, weigh, claim."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from millpond.errors import NoRoom, NoSuchHost, PlacementMisunderstands
from millpond.scheduling.decision import Choice, Decision, State, Verdict
from millpond.scheduling.filters import ALWAYS, placement_query, require_image_type_support
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import DISK, MEMORY, VCPU, pool_provider
from millpond.scheduling.query import PlacementQuery
from millpond.scheduling.reasons import Reasons
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.values import Allocations, Stock
from millpond.scheduling.weighers import Multipliers, Standing, weigh

_log = logging.getLogger(__name__)

Stocks = Mapping[str, Stock]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    filters_image_types: bool
    """filter_hosts_by_image_type_support (B33)."""
    multipliers: Multipliers


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host of ours as only its owner knows it, for one request."""

    native: bool
    cached: bool
    plan: Mapping[str, int]
    """GiB of each pool, by its name: what the server's disks would be there."""
    shared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of those pools that are reported as shared: the UUIDs of the hosts that share them."""
    unreachable: str = ""
    """Why; empty if it answers."""


View = Callable[[str], HostView]
"""By the host's name; asked of candidates only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    host: str
    allocations: Allocations
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """A host of ours that Placement offers."""

    name: str
    uuid: str
    view: HostView
    pools: Mapping[str, str]
    """The providers of the pools that it plans with, by name."""


class Scheduler:
    def __init__(
        self, placement: Placement, policy: SchedulingPolicy, hosts: Mapping[str, str]
    ) -> None:
        """``hosts``: ours, name to UUID. No other is ever chosen."""
        self._placement = placement
        self._policy = policy
        self._hosts = hosts
        self._reasons = Reasons(placement, hosts)
        self._names = {uuid: name for name, uuid in hosts.items()}

    def query(self, request: SchedulingRequest) -> PlacementQuery:
        first = (require_image_type_support,) if self._policy.filters_image_types else ()
        query = placement_query(request, (*first, *ALWAYS))
        if not request.host and not request.purpose.stays:
            return query
        if request.host not in self._hosts:
            raise NoSuchHost(request.host)
        return query.within(self._hosts[request.host])

    def decide(
        self, request: SchedulingRequest, view: View, *, everything: bool = False
    ) -> Decision:
        """Nothing is written. Why other hosts do not fit is looked for if none does, or if
        ``everything`` is to be shown."""
        query = self.query(request)
        found, stocks = self._candidates(request, query)
        offered = {name: self._offered(name, view(name)) for name in self._ours(found, request)}
        troubles = {name: _trouble(each, stocks) for name, each in offered.items()}
        fits = {name: each for name, each in offered.items() if troubles[name] is None}
        standings = {name: _standing(each, stocks) for name, each in fits.items()}
        scores = weigh(standings, self._policy.multipliers)
        ranked = [
            Verdict(host=name, state=State.FITS, score=score.total, parts=score.parts)
            for name, score in scores.items()
        ]
        rest = [each for each in troubles.values() if each is not None]
        if everything or not ranked:
            rest += self._reasons.of(request, query, offered.keys())
        return Decision(
            request=request,
            query=query,
            choices=tuple(_choice(fits[name], query) for name in scores),
            verdicts=(*ranked, *sorted(rest, key=lambda each: each.host)),
        )

    def claim(self, decision: Decision) -> Claim:
        """The best host that still has room; NoValidHost if there is none."""
        server = decision.request.server
        for choice in decision.choices:
            try:
                self._placement.allocations.claim(server, choice.allocations)
            except (NoRoom, PlacementMisunderstands) as error:
                _log.debug("server %s does not fit on host %s: %s", server, choice.host, error)
                decision = decision.lost(choice.host, error.reason)
                continue
            _log.debug("server %s is claimed on host %s", server, choice.host)
            return Claim(
                host=choice.host,
                allocations=choice.allocations,
                decision=decision.won(choice.host),
            )
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

    def _offered(self, name: str, seen: HostView) -> _Offered:
        host = self._hosts[name]
        pools = {
            pool: pool_provider(host, pool, seen.shared.get(pool, ()))
            for pool, needed in seen.plan.items()
            if needed
        }
        return _Offered(name=name, uuid=host, view=seen, pools=pools)


def _trouble(host: _Offered, stocks: Stocks) -> Verdict | None:
    """What speaks against it all the same."""
    if host.view.unreachable:
        return Verdict(host=host.name, state=State.UNREACHABLE, reason=host.view.unreachable)
    for pool, uuid in host.pools.items():
        needed = host.view.plan[pool]
        # A pool that did not have to be looked at for the query is left to the claim.
        if uuid in stocks and (free := stocks[uuid].resources[DISK].free) < needed:
            reason = f"pool {pool} has {free} of {needed} GiB"
            return Verdict(host=host.name, state=State.NO_ROOM, reason=reason)
    return None


def _standing(host: _Offered, stocks: Stocks) -> Standing:
    pools = [stocks[uuid] for uuid in host.pools.values() if uuid in stocks]
    return Standing(
        native=host.view.native,
        cached=host.view.cached,
        disk=sum(each.resources[DISK].free for each in pools),
        memory=stocks[host.uuid].resources[MEMORY].free if host.uuid in stocks else 0,
    )


def _choice(host: _Offered, query: PlacementQuery) -> Choice:
    """Placement offers some pools that serve; the host's own plan says which."""
    disks = {uuid: {DISK: host.view.plan[pool]} for pool, uuid in host.pools.items()}
    machine = {VCPU: query.vcpus, MEMORY: query.memory}
    return Choice(host=host.name, allocations={host.uuid: machine, **disks})
