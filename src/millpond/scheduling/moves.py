"""A server that moves has something at both ends: there by its own id, here by its migration's.

As in Nova: whatever happens in between, Placement counts both, and each end can be released alone.
"""

from collections.abc import Iterable

from millpond.scheduling.placement import Allocations, ConsumerAllocations, Look, Write


def begin(
    placed: ConsumerAllocations, server: str, migration: str, destination: Allocations
) -> None:
    """NoRoom, and everything as it was, if it does not fit there. Done twice it is done once. What
    it has of a pool that both hosts share counts once."""

    def writes(look: Look) -> Iterable[Write]:
        moving, leaving = look(server), look(migration)
        yield moving.writing(destination)
        if not leaving.consumer.allocations:
            held = moving.consumer.held
            yield leaving.writing({each: held[each] for each in held if each not in destination})

    placed.change(server, writes)


def confirm(placed: ConsumerAllocations, migration: str) -> None:
    """It is there: what it had here is free."""
    placed.release(migration)


def revert(placed: ConsumerAllocations, server: str, migration: str, here: Allocations) -> None:
    """It stays, with what it takes here: what it would have had there is free."""

    def writes(look: Look) -> Iterable[Write]:
        staying, left = look(server), look(migration)
        if left.consumer.allocations:
            yield staying.writing(here)
            yield left.writing({})

    placed.change(server, writes)
