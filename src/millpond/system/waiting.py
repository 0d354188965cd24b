"""Waiting for what nothing announces."""

import time
from collections.abc import Callable

POLL = 0.1  # seconds


def wait_until(is_so: Callable[[], bool], seconds: float, every: float = POLL) -> bool:
    """Whether it became so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= end:
            return False
        time.sleep(every)
    return True
