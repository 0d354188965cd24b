"""Waiting for something to become true, with an end."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = 0.02


def wait_for(predicate: Callable[[], T], seconds: float) -> T:
    """Ask until the answer is truthy and return it; fail when that takes longer than `seconds`."""
    end = time.monotonic() + seconds
    while not (answer := predicate()):
        if time.monotonic() > end:
            name = getattr(predicate, "__qualname__", repr(predicate))
            raise AssertionError(f"not within {seconds} s: {name}")
        time.sleep(_PAUSE)
    return answer
