"""What is asked of Placement: resources and traits, in groups that one provider serves each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from millpond.scheduling.providers import DISK, MEMORY, VCPU, gibibytes, mebibytes
from millpond.scheduling.request import SchedulingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementQuery:
    """The machine is served by a host itself, each of its disks by one pool of it.

    A host of Nova's has all three at one provider, which serves the same query.
    """

    vcpus: int
    memory: int
    """MiB."""
    root: int
    """GiB, as the next one."""
    blank: int
    required: frozenset[str] = frozenset()
    """Of the host."""
    forbidden: frozenset[str] = frozenset()
    root_required: frozenset[str] = frozenset()
    """Of the pool that has the root disk: one that is shared may have a trait for the sake of
    another host, so the host is asked, too."""
    in_tree: str = ""
    """The UUID of the only host that may answer."""

    def requiring(self, traits: Iterable[str]) -> Self:
        return replace(self, required=self.required | frozenset(traits))

    def forbidding(self, traits: Iterable[str]) -> Self:
        return replace(self, forbidden=self.forbidden | frozenset(traits))

    def requiring_of_root(self, trait: str) -> Self:
        return replace(self, root_required=self.root_required | {trait})

    def within(self, host: str) -> Self:
        return replace(self, in_tree=host)

    @property
    def traits(self) -> str:
        """As Placement writes both kinds."""
        return ",".join([*sorted(self.required), *(f"!{each}" for each in sorted(self.forbidden))])

    def params(self) -> Iterator[tuple[str, str]]:
        yield "resources", f"{VCPU}:{self.vcpus},{MEMORY}:{self.memory}"
        if self.traits:
            # The host is the root. Asked of the group without a name, which only the root can
            # serve, it would be the same and take Placement twice the time.
            yield "root_required", self.traits
        if self.root:
            yield "resources_ROOT", f"{DISK}:{self.root}"
        if self.root and self.root_required:
            yield "required_ROOT", ",".join(sorted(self.root_required))
        if self.blank:
            yield "resources_BLANK", f"{DISK}:{self.blank}"
        if self.root and self.blank:
            yield "group_policy", "none"  # both disks may be in one pool
        if self.in_tree:
            yield "in_tree", self.in_tree


def plain_query(request: SchedulingRequest) -> PlacementQuery:
    """Without any condition."""
    return PlacementQuery(
        vcpus=max(request.vcpus, 1),
        memory=max(mebibytes(request.memory), 1),
        root=gibibytes(request.root),
        blank=gibibytes(request.blank),
    )
