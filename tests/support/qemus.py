"""The QEMUs of one server, on whatever host."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.support.processes import find_pids

_SECONDS = 0.05


@contextlib.contextmanager
def watching_qemus(server: str) -> Iterator[set[int]]:
    """Every one that it has had since then; at no time two of them, with copies of one disk."""
    seen: set[int] = set()
    at_once: list[set[int]] = []
    end = threading.Event()

    def look() -> None:
        while not end.wait(_SECONDS):
            now = set(find_pids(partial(_is_of, server)))
            seen.update(now)
            if len(now) > 1:
                at_once.append(now)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()
    assert at_once == []


def _is_of(server: str, pid: int) -> bool:
    with contextlib.suppress(OSError):
        return f"-uuid\0{server}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
