"""Undo what was done when a later step fails."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def undo_on_failure() -> Iterator[ExitStack]:
    """Run the registered callbacks, last one first, only if the block raises.

    with undo_on_failure() as undo:
        volume = pool.create(spec)
        undo.callback(pool.delete, volume.name)
        attach(volume)
    """
    with ExitStack() as undo:
        yield undo
        undo.pop_all()
