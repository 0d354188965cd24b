"""What became of a request: every host with its verdict, and why none if there is none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from millpond.errors import NoValidHost, Tool
from millpond.scheduling.query import PlacementQuery
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.traits import IMAGE_TYPES

_LISTED = 10
"""Hosts in one message; explain shows all."""


class State(StrEnum):
    FITS = "fits"
    LACKS = "lacks"
    NO_ROOM = "no room"
    LATE = "late"
    """There was room when Placement was asked, and none any more when it was to be claimed."""
    DISABLED = "disabled"
    UNREACHABLE = "unreachable"
    FOREIGN = "foreign"
    """It fits, and is no host of ours."""
    NOT_ASKED = "not asked"
    """Another host was asked for, or this one is to be avoided."""
    NOT_REPORTED = "not reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    host: str
    state: State
    reason: str = ""
    lacks: frozenset[str] = frozenset()
    """Traits."""
    reports_image_types: bool = True
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    request: SchedulingRequest
    query: PlacementQuery
    choices: tuple[str, ...]
    """Hosts of ours, best first."""
    verdicts: tuple[Verdict, ...]
    """Those of the choices first."""

    def lost(self, host: str, reason: str) -> Self:
        """Somebody else was faster."""
        left = tuple(each for each in self.choices if each != host)
        late = Verdict(host=host, state=State.LATE, reason=reason)
        return replace(self, choices=left).reconsidered([late])

    def reconsidered(self, verdicts: Iterable[Verdict]) -> Self:
        anew = {each.host: each for each in verdicts}
        return replace(self, verdicts=tuple(anew.get(each.host, each) for each in self.verdicts))

    def no_valid_host(self) -> NoValidHost:
        return NoValidHost(self._why(), _listed(self.verdicts), self._advice())

    def _why(self) -> str:
        if not self.verdicts:
            return "no host has been reported to Placement"
        asked = self.query.required | self.query.root_required
        meant = [each for each in self.verdicts if each.state is not State.NOT_ASKED]
        nowhere = [each for each in sorted(asked) if all(each in v.lacks for v in meant)]
        if nowhere:
            return f"none has {' and '.join(nowhere)}"
        return "none has all that is asked for"

    def _advice(self) -> str:
        silent = [each.host for each in self.verdicts if not each.reports_image_types]
        if silent and not self.query.required.isdisjoint(IMAGE_TYPES.values()):
            return (
                f"hosts are filtered by image types, and {_and_more(silent)} reported none at "
                f"all: '{Tool.REPORT_HOSTS}' reports those of our hosts, others need a "
                "Nova that does; set filter_hosts_by_image_type_support = false until all have"
            )
        return f"'{Tool.EXPLAIN}' shows every host and what it lacks"


def _listed(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    each = [f"{verdict.host}: {verdict.reason or verdict.state}" for verdict in verdicts]
    rest = len(each) - _LISTED
    return (*each[:_LISTED], f"and {rest} more") if rest > 0 else tuple(each)


def _and_more(names: list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
