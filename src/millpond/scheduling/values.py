"""What Placement answers, as values with Placement's own names."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    capacity: int
    used: int

    @property
    def free(self) -> int:
        """Less than nothing where an inventory shrank below what is allocated."""
        return max(self.capacity - self.used, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What a provider has, as it is shown beside candidates."""

    resources: dict[str, Usage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Stock):
    """The same with all that is to be known of it. Of thousands of hosts, traits are the most."""

    traits: frozenset[str]
    root_provider_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    mappings: dict[str, list[str]]
    """Which providers serve which group of the query; "" is the group without a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    allocation_requests: list[Candidate]
    provider_summaries: dict[str, Stock]

    @property
    def hosts(self) -> set[str]:
        """Roots of the trees that can serve the query: only there are processors."""
        return {each.mappings[""][0] for each in self.allocation_requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What a consumer is to have; nothing: it ends."""

    consumer: str
    allocations: Allocations
    generation: int | None
    """As it was read; None for a consumer that is new."""
