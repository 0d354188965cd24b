"""The same for each of several things, some at a time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each_of(
    things: Sequence[T], act: Callable[[T], R], at_once: int, *, in_order: bool = False
) -> Iterator[R]:
    """What came of each, as it ends. Interrupted, what was begun is finished, and no more is."""
    threads = ThreadPoolExecutor(at_once)
    try:
        begun = [threads.submit(act, each) for each in things]
        for future in begun if in_order else as_completed(begun):
            yield future.result()
    finally:
        threads.shutdown(cancel_futures=True)
