"""Placement's resources as values with its own names, and the verbs that we use of each."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from millpond.errors import NotInPlacement, PlacementBadRequest, UnknownTrait
from millpond.scheduling.api import WITH_CONSUMER_TYPES, Api, ConcurrentUpdate, Transport

PROJECT = "millpond"
"""Whose consumers are ours."""
_CONSUMER_TYPE = "INSTANCE"
"""Nova's for servers, so that usages of both add up."""

T = TypeVar("T")
Params = Iterable[tuple[str, str]]
Change = Callable[[T], T]
"""From what is there to what is to be there; asked again when others were faster."""


Resources = Mapping[str, int]
"""How much of each resource class."""
Allocations = Mapping[str, Resources]
"""By the provider's UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventories:
    """Of one provider."""

    inventories: dict[str, Inventory]
    resource_provider_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    traits: frozenset[str]
    resource_provider_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregates:
    aggregates: frozenset[str]
    resource_provider_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a consumer has of one provider."""

    resources: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """What a server has, of all providers. No generation: it has nothing."""

    allocations: dict[str, Allocation]
    consumer_generation: int | None = None
    project_id: str = ""

    @property
    def held(self) -> Allocations:
        return {uuid: each.resources for uuid, each in self.allocations.items()}


class _Many(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """There are tens of thousands of these at once. Python's collector would look at all of them
    for cycles, which they cannot be part of, and take longer than the rest of a decision."""


class Usage(_Many, frozen=True):
    capacity: int
    used: int

    @property
    def free(self) -> int:
        """Never less than nothing, also where an inventory shrank below what is allocated."""
        return max(self.capacity - self.used, 0)


class Stock(_Many, frozen=True):
    """What a provider has, as it is shown next to candidates."""

    resources: dict[str, Usage]


class Summary(Stock, frozen=True):
    """The same with all that is to be known of it. Of thousands of hosts, traits are the most."""

    traits: frozenset[str]
    root_provider_uuid: str


class Mappings(_Many, frozen=True):
    """Which providers serve which group of the query."""

    machine: tuple[str, ...] = msgspec.field(name="")


class Candidate(_Many, frozen=True):
    mappings: Mappings


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    allocation_requests: list[Candidate]
    provider_summaries: dict[str, Stock]

    @property
    def hosts(self) -> set[str]:
        """Roots of the trees that can serve the query: only there are processors."""
        return {each.mappings.machine[0] for each in self.allocation_requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What a consumer is to have; nothing: it ends."""

    consumer: str
    allocations: Allocations
    generation: int | None
    """As it was read; None for a consumer that is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Providers:
    resource_providers: list[Provider]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summaries:
    provider_summaries: dict[str, Summary]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    traits: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Users:
    allocations: dict[str, Allocation]


class Placement:
    """Threads may share it."""

    def __init__(self, transport: Transport) -> None:
        self._api = Api(transport)
        self.providers = Providers(self._api)
        self.allocations = ConsumerAllocations(self._api)

    def candidates(self, query: Params) -> Candidates:
        """UnknownTrait if that is what is wrong with the query."""
        params = tuple(query)
        with _unknown_traits_named(self._api, params):
            return self._api.get(f"/allocation_candidates?{urlencode(params)}", Candidates)

    def with_free(self, resources: Resources) -> dict[str, Summary]:
        """Every provider of every tree in which there is as much, by its UUID."""
        asked = ",".join(f"{name}:{amount}" for name, amount in resources.items())
        query = urlencode({"resources": asked})
        found = self._api.get(f"/allocation_candidates?{query}", _Summaries)
        return found.provider_summaries

    def make_traits(self, names: Iterable[str]) -> None:
        """Custom ones, unless they are there."""
        for name in names:
            self._api.ask("PUT", f"/traits/{name}")


class Providers:
    """Resource providers: their trees, inventories, traits and aggregates."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def find(self, **params: str) -> list[Provider]:
        """By name, uuid, in_tree, member_of or required; all of them without any."""
        query = f"?{urlencode(params)}" if params else ""
        with _unknown_traits_named(self._api, params.items()):
            found = self._api.get(f"/resource_providers{query}", _Providers)
        return found.resource_providers

    def create(self, uuid: str, name: str, parent: str | None = None) -> None:
        wanted = {
            "uuid": uuid,
            "name": name,
            **({"parent_provider_uuid": parent} if parent else {}),
        }
        self._api.ask("POST", "/resource_providers", wanted)

    def rename(self, provider: Provider, name: str) -> None:
        body: dict[str, str] = {"name": name}
        if provider.parent_provider_uuid:  # else it would be made a root
            body["parent_provider_uuid"] = provider.parent_provider_uuid
        self._api.ask("PUT", f"/resource_providers/{provider.uuid}", body)

    def remove(self, uuid: str) -> None:
        """StillAllocated if something is allocated there; one that is gone is no error."""
        try:
            self._api.ask("DELETE", f"/resource_providers/{uuid}")
        except NotInPlacement:
            return

    def inventories(self, uuid: str) -> dict[str, Inventory]:
        found = self._api.get(f"/resource_providers/{uuid}/inventories", Inventories)
        return found.inventories

    def traits(self, uuid: str) -> frozenset[str]:
        return self._api.get(f"/resource_providers/{uuid}/traits", Traits).traits

    def aggregates(self, uuid: str) -> frozenset[str]:
        return self._api.get(f"/resource_providers/{uuid}/aggregates", Aggregates).aggregates

    def consumers(self, uuid: str) -> dict[str, dict[str, int]]:
        """What each consumer has of it."""
        users = self._api.get(f"/resource_providers/{uuid}/allocations", _Users).allocations
        return {consumer: each.resources for consumer, each in users.items()}

    def change_inventories(self, uuid: str, change: Change[Mapping[str, Inventory]]) -> bool:
        """Whether it had to be written; so are the next two."""

        def read() -> tuple[Mapping[str, Inventory], int]:
            now = self._api.get(f"/resource_providers/{uuid}/inventories", Inventories)
            return now.inventories, now.resource_provider_generation

        return self._change(uuid, "inventories", read, change)

    def change_traits(self, uuid: str, change: Change[frozenset[str]]) -> bool:
        def read() -> tuple[frozenset[str], int]:
            now = self._api.get(f"/resource_providers/{uuid}/traits", Traits)
            return now.traits, now.resource_provider_generation

        return self._change(uuid, "traits", read, change)

    def change_aggregates(self, uuid: str, change: Change[frozenset[str]]) -> bool:
        def read() -> tuple[frozenset[str], int]:
            now = self._api.get(f"/resource_providers/{uuid}/aggregates", Aggregates)
            return now.aggregates, now.resource_provider_generation

        return self._change(uuid, "aggregates", read, change)

    def _change(
        self, uuid: str, what: str, read: Callable[[], tuple[T, int]], change: Change[T]
    ) -> bool:
        def act() -> bool:
            now, generation = read()
            wanted = change(now)
            if wanted == now:
                return False
            body = {what: wanted, "resource_provider_generation": generation}
            self._api.ask("PUT", f"/resource_providers/{uuid}/{what}", body)
            return True

        return self._api.retry(f"the {what} of provider {uuid}", act)


@dataclass(frozen=True, slots=True)
class Seen:
    """A consumer as it was looked at, to be changed."""

    id: str
    consumer: Consumer
    generation: int | None

    def writing(self, allocations: Allocations) -> Write:
        return Write(consumer=self.id, allocations=allocations, generation=self.generation)


Look = Callable[[str], Seen]


class ConsumerAllocations:
    """What servers have."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def of(self, consumer: str) -> Consumer:
        return self._api.get(f"/allocations/{consumer}", Consumer)

    def claim(self, consumer: str, wanted: Allocations) -> None:
        """All of it or nothing (NoRoom). A consumer that has something gets this in its place."""
        try:
            self._write([Write(consumer=consumer, allocations=wanted, generation=None)])
        except ConcurrentUpdate:
            self.change(consumer, lambda seen: [seen(consumer).writing(wanted)])

    def release(self, consumer: str) -> None:
        """One that has nothing is no error."""
        try:
            self._api.ask("DELETE", f"/allocations/{consumer}")
        except NotInPlacement:
            return

    def change(self, consumer: str, writes: Callable[[Look], Iterable[Write]]) -> None:
        """All of the writes or none. They are made from what ``writes`` looked at, and again when
        that has changed meanwhile."""
        # Whoever was killed in the middle of a claim may have left a consumer without allocations,
        # which Placement does not show; its generation is 0. Any other that is not shown is new.
        unseen = itertools.cycle((None, 0))

        def act() -> None:
            guess = next(unseen)

            def look(id: str) -> Seen:
                found = self.of(id)
                known = found.consumer_generation
                return Seen(id, found, guess if known is None else known)

            self._write(writes(look))

        self._api.retry(f"the allocations of server {consumer}", act)

    def _write(self, writes: Iterable[Write]) -> None:
        bodies = {each.consumer: self._body(each) for each in writes}
        if len(bodies) > 1:
            self._api.ask("POST", "/allocations", bodies)
            return
        for consumer, body in bodies.items():
            self._api.ask("PUT", f"/allocations/{consumer}", body)

    def _body(self, write: Write) -> dict[str, object]:
        typed = self._api.version >= WITH_CONSUMER_TYPES
        return {
            "allocations": {
                uuid: {"resources": dict(resources)}
                for uuid, resources in write.allocations.items()
            },
            "consumer_generation": write.generation,
            "project_id": PROJECT,
            "user_id": PROJECT,
            **({"consumer_type": _CONSUMER_TYPE} if typed else {}),
        }


@contextmanager
def _unknown_traits_named(api: Api, params: Params) -> Iterator[None]:
    """Placement says of a query that it is bad; if that is because of a trait, say so."""
    try:
        yield
    except PlacementBadRequest:
        lists = [value.split(",") for name, value in params if "required" in name]
        asked = {each.removeprefix("in:").removeprefix("!") for names in lists for each in names}
        names = quote(",".join(sorted(asked)))
        if asked and (unknown := asked - api.get(f"/traits?name=in:{names}", _Names).traits):
            raise UnknownTrait(tuple(sorted(unknown))) from None
        raise
