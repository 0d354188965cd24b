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
from millpond.scheduling.values import Allocations, Summary
from millpond.scheduling.weighers import Multipliers, Standing, weigh

_log = logging.getLogger(__name__)

Summaries = Mapping[str, Summary]


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
        found, summaries = self._candidates(request, query)
        views = {name: view(name) for name in self._ours(found, request)}
        fits = {}
        verdicts = []
        for name, seen in views.items():
            if (trouble := self._trouble(name, seen, summaries)) is None:
                fits[name] = self._standing(name, seen, summaries)
            else:
                verdicts.append(trouble)
        scores = weigh(fits, self._policy.multipliers)
        ranked = [
            Verdict(host=name, state=State.FITS, score=score.total, parts=score.parts)
            for name, score in scores.items()
        ]
        if everything or not ranked:
            verdicts += self._reasons.of(request, query, views.keys())
        choices = (self._choice(name, query, views[name]) for name in scores)
        rest = sorted(verdicts, key=lambda each: each.host)
        return Decision(
            request=request, query=query, choices=tuple(choices), verdicts=(*ranked, *rest)
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
        raise self._reconsidered(decision).no_valid_host()

    def _reconsidered(self, decision: Decision) -> Decision:
        """What Placement says of a claim that came too late names no amounts."""
        late = {each.host for each in decision.verdicts if each.state is State.LATE}
        if not late:
            return decision
        others = {each.host for each in decision.verdicts} - late
        reasons = self._reasons.of(decision.request, decision.query, others)
        return decision.reconsidered(each for each in reasons if each.host in late)

    def _candidates(
        self, request: SchedulingRequest, query: PlacementQuery
    ) -> tuple[set[str], Summaries]:
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

    def _trouble(self, name: str, seen: HostView, summaries: Summaries) -> Verdict | None:
        """What speaks against a host that Placement offers."""
        if seen.unreachable:
            return Verdict(host=name, state=State.UNREACHABLE, reason=seen.unreachable)
        for pool, needed in seen.plan.items():
            uuid = pool_provider(self._hosts[name], pool, seen.shared.get(pool, ()))
            # A pool that did not have to be looked at for the query is left to the claim.
            if uuid in summaries and (free := summaries[uuid].resources[DISK].free) < needed:
                reason = f"pool {pool} has {free} of {needed} GiB"
                return Verdict(host=name, state=State.NO_ROOM, reason=reason)
        return None

    def _standing(self, name: str, seen: HostView, summaries: Summaries) -> Standing:
        host = self._hosts[name]
        pools = {pool_provider(host, pool, seen.shared.get(pool, ())) for pool in seen.plan}
        return Standing(
            native=seen.native,
            cached=seen.cached,
            disk=sum(summaries[each].resources[DISK].free for each in pools if each in summaries),
            memory=summaries[host].resources[MEMORY].free if host in summaries else 0,
        )

    def _choice(self, name: str, query: PlacementQuery, seen: HostView) -> Choice:
        """Placement offers some pools that serve; the host's own plan says which."""
        host = self._hosts[name]
        allocations = {host: {VCPU: query.vcpus, MEMORY: query.memory}}
        for pool, needed in seen.plan.items():
            if needed:
                uuid = pool_provider(host, pool, seen.shared.get(pool, ()))
                allocations[uuid] = {DISK: needed}
        return Choice(host=name, allocations=allocations)
