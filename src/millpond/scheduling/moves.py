"""A server that moves has something at both ends: there by its own id, here by its migration's.

As in Nova: whatever happens in between, Placement counts both, and each end can be let go alone.
"""

from collections.abc import Iterable

from millpond.scheduling.placement import Allocations, ConsumerAllocations, Look, Write


def begin(
    placed: ConsumerAllocations, server: str, migration: str, destination: Allocations
) -> None:
    """NoRoom, and everything as it was, if it does not fit there. Done twice it is done once."""

    def writes(look: Look) -> Iterable[Write]:
        moving, leaving = look(server), look(migration)
        yield moving.writing(destination)
        if not leaving.consumer.allocations:
            yield leaving.writing(moving.consumer.held)

    placed.change(server, writes)


def confirm(placed: ConsumerAllocations, migration: str) -> None:
    """It is there: what it had here is free."""
    placed.release(migration)


def revert(placed: ConsumerAllocations, server: str, migration: str) -> None:
    """It stays here: what it would have had there is free."""

    def writes(look: Look) -> Iterable[Write]:
        staying, left = look(server), look(migration)
        if left.consumer.allocations:
            yield staying.writing(left.consumer.held)
            yield left.writing({})

    placed.change(server, writes)
