"""Whether Placement has for each server what its record says, and no more; and healing it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from millpond.errors import NoRoom, NotInPlacement
from millpond.scheduling.placement import PROJECT, Allocations, Look, Placement, Write


class Difference(StrEnum):
    MISSING = "missing"
    """A server of ours has nothing in Placement."""
    DIFFERENT = "different"
    ORPHAN = "orphan"
    """A consumer of ours for which there is no server."""
    DEAD_PROVIDER = "dead provider"
    """A server should have something of a provider that is not there: report the host first."""
    FOREIGN = "foreign"
    """Somebody else's consumer takes something of a host of ours. It is left alone."""

    @property
    def can_be_repaired(self) -> bool:
        return self not in (Difference.DEAD_PROVIDER, Difference.FOREIGN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    consumer: str
    """A server's id."""
    difference: Difference
    expected: Allocations
    found: Allocations


class Consistency:
    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def examine(
        self, expected: Mapping[str, Allocations], providers: Collection[str]
    ) -> list[Mismatch]:
        """``expected`` by the server's id, and by a migration's what its server leaves behind.
        ``providers``: those of our hosts and pools; no others are looked at."""
        found = self._consumers(providers)
        consumers = sorted(found.keys() | expected.keys())
        return [each for id in consumers for each in self._compare(id, expected, found)]

    def repair(self, findings: Iterable[Mismatch]) -> list[Mismatch]:
        """Those that were repaired. What changed since it was examined is left alone."""
        return [
            each for each in findings if each.difference.can_be_repaired and self._repair(each)
        ]

    def _consumers(self, providers: Collection[str]) -> dict[str, dict[str, Mapping[str, int]]]:
        """By consumer, then by provider."""
        found: dict[str, dict[str, Mapping[str, int]]] = {}
        for uuid in sorted(providers):
            try:
                consumers = self._placement.providers.consumers(uuid)
            except NotInPlacement:
                continue
            for consumer, resources in consumers.items():
                found.setdefault(consumer, {})[uuid] = resources
        return found

    def _compare(
        self,
        id: str,
        expected: Mapping[str, Allocations],
        found: Mapping[str, Allocations],
    ) -> Iterator[Mismatch]:
        wanted, has = expected.get(id, {}), found.get(id, {})
        if wanted == has:
            return
        whole = self._placement.allocations.of(id)
        if whole.held == wanted:
            return
        yield Mismatch(
            consumer=id,
            difference=self._difference(wanted, whole.held, whole.project_id),
            expected=wanted,
            found=whole.held,
        )

    def _difference(self, wanted: Allocations, has: Allocations, project: str) -> Difference:
        if has and project != PROJECT:
            return Difference.FOREIGN
        if not wanted:
            return Difference.ORPHAN
        if any(not self._placement.providers.find(uuid=each) for each in wanted):
            return Difference.DEAD_PROVIDER
        return Difference.DIFFERENT if has else Difference.MISSING

    def _repair(self, finding: Mismatch) -> bool:
        repaired = False

        def writes(look: Look) -> Iterable[Write]:
            nonlocal repaired
            seen = look(finding.consumer)
            repaired = seen.consumer.held == finding.found
            return [seen.writing(finding.expected)] if repaired else []

        try:
            self._placement.allocations.change(finding.consumer, writes)
        except NoRoom:  # the server is there all the same: somebody has to move
            return False
        return repaired
