"""What callers are told while something goes on."""

from collections.abc import Callable

Progress = Callable[[int], None]
"""Called with the number of bytes that were just done."""


def noop(*_what: object) -> None:
    """As a callback: nobody wants to know. As an undo: there is nothing to undo. As the end of an
    operation: nothing is left."""


def scaled(progress: Progress, total: int, onto: int) -> Progress:
    """Told of ``total`` bytes in all, it tells of ``onto``: for one leg of a longer way."""
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        progress(done * onto // total - before * onto // total)

    return tell
