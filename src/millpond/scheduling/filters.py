"""Request filters: pure functions that add a condition to the query, and never decide."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from millpond.errors import BadRequirement, ImageTypeUnknown
from millpond.scheduling.query import PlacementQuery, plain_query
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.traits import DISABLED, IMAGE_TYPES, of_architecture

RequestFilter = Callable[[SchedulingRequest, PlacementQuery], PlacementQuery]

_TRAIT_KEY = re.compile(r"trait(?P<group>[A-Za-z0-9_-]*):(?P<trait>.*)", re.DOTALL)
_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")
_REQUIRED = "required"
_FORBIDDEN = "forbidden"


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
