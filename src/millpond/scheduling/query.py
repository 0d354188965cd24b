"""From what is asked of a host to what is asked of Placement: resources, traits, filters.

Request filters are pure functions that add a condition to the query, and never decide.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Self

from millpond.errors import BadRequirement, ImageTypeUnknown
from millpond.scheduling.providers import DISK, MEMORY, VCPU, gibibytes, mebibytes
from millpond.scheduling.traits import DISABLED, IMAGE_TYPES, of_architecture

_TRAIT_KEY = re.compile(r"trait(?P<group>[A-Za-z0-9_-]*):(?P<trait>.*)", re.DOTALL)
_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")
_REQUIRED = "required"
_FORBIDDEN = "forbidden"


class Purpose(StrEnum):
    CREATE = "create"
    RESIZE = "resize"
    MIGRATE = "migrate"
    LIVE_MIGRATE = "live migrate"
    EVACUATE = "evacuate"
    UNSHELVE = "unshelve"
    REBUILD = "rebuild"

    @property
    def moves(self) -> bool:
        """From one host to another."""
        return self in (Purpose.MIGRATE, Purpose.LIVE_MIGRATE)

    @property
    def stays(self) -> bool:
        """On its host, with what it has there."""
        return self is Purpose.REBUILD


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRequest:
    server: str
    """Its id, which is its consumer's in Placement; of one that has none yet, its name."""
    image_format: str | None
    """disk_format as the image service declares it; anything at all may stand there."""
    boots_from_volume: bool = False
    vcpus: int
    memory: int
    root: int
    """Bytes, as those above and below; 0: no root disk of ours."""
    blank: int = 0
    """Ephemeral and swap disks together."""
    image_properties: Mapping[str, str] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """The flavour's."""
    host: str = ""
    """The name of the one that it must be: forced, or where it is. It has to fit all the same."""
    avoid: frozenset[str] = frozenset()
    """Names of hosts that it must not be, such as the one that it leaves."""
    purpose: Purpose = Purpose.CREATE


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
            # serve, it would be the same and take Placement 1.7 times as long.
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


RequestFilter = Callable[[SchedulingRequest, PlacementQuery], PlacementQuery]


def require_image_type_support(
    request: SchedulingRequest, query: PlacementQuery
) -> PlacementQuery:
    """Only hosts that can use the image's format, with a pool for it. A volume is used as it is,
    so its format does not matter; one that nobody knows fails closed (B37)."""
    if request.boots_from_volume:
        return query
    trait = IMAGE_TYPES.get((request.image_format or "").lower())
    if trait is None:
        raise ImageTypeUnknown(request.image_format or "")
    return query.requiring({trait}).requiring_of_root(trait)


def forbid_disabled_hosts(request: SchedulingRequest, query: PlacementQuery) -> PlacementQuery:
    """A server that stays may, wherever it is."""
    return query if request.purpose.stays else query.forbidding({DISABLED})


def require_architecture(request: SchedulingRequest, query: PlacementQuery) -> PlacementQuery:
    name = request.image_properties.get("hw_architecture", "")
    if not name:
        return query
    trait = of_architecture(name)
    if trait is None:
        reason = "no trait of os-traits says that a host has it"
        raise BadRequirement("hw_architecture", name, reason)
    return query.requiring({trait})


def require_traits(request: SchedulingRequest, query: PlacementQuery) -> PlacementQuery:
    """trait:NAME of the flavour and of the image, both at once."""
    stated = [*_stated(request.extra_specs), *_stated(request.image_properties)]
    asked = query.requiring(_with(stated, _REQUIRED)).forbidding(_with(stated, _FORBIDDEN))
    for trait in sorted(asked.required & asked.forbidden):
        raise BadRequirement(f"trait:{trait}", _REQUIRED, "it is forbidden at the same time")
    return asked


ALWAYS: tuple[RequestFilter, ...] = (
    forbid_disabled_hosts,
    require_architecture,
    require_traits,
)


def placement_query(
    request: SchedulingRequest, filters: Sequence[RequestFilter]
) -> PlacementQuery:
    return reduce(lambda query, each: each(request, query), filters, plain_query(request))


def _stated(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        if not (match := _TRAIT_KEY.fullmatch(key)):
            continue
        if match["group"]:
            raise BadRequirement(key, value, "groups of resources are not supported")
        if not _TRAIT.fullmatch(match["trait"]):
            raise BadRequirement(key, value, "this is no name of a trait")
        wish = value.strip().lower()
        if wish not in (_REQUIRED, _FORBIDDEN):
            raise BadRequirement(key, value, f"it is neither {_REQUIRED} nor {_FORBIDDEN}")
        yield match["trait"], wish


def _with(stated: Iterable[tuple[str, str]], wish: str) -> set[str]:
    return {trait for trait, each in stated if each == wish}
