"""Commands that do the same to several things."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from millpond.cli.output import complain
from millpond.errors import MillpondError

T = TypeVar("T")
R = TypeVar("R")


def try_each(things: Sequence[T], act: Callable[[T], R]) -> tuple[list[R], int]:
    """All are tried. What came of those that worked, and the exit status: that of the first error.
    Of one thing alone the error is the command's own."""
    done: list[R] = []
    status = 0
    for each in things:
        try:
            done.append(act(each))
        except MillpondError as error:
            if len(things) == 1:
                raise
            complain(error)
            status = status or error.exit_code
    return done, status
