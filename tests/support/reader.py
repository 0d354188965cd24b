"""A guest that checks every byte of its disk as it reads it, and what it has printed of that."""

import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.support.millpond import Millpond
from tests.support.waiting import wait_for

_SOURCE = Path(__file__).with_name("reader.asm")
_SECTOR = 512
_FIRST = 64
"""What lies before it is the program's."""


def build_reader(path: Path, size: int) -> Path:
    count = size // _SECTOR
    words = ["nasm", f"-DEND={count}", "-o", str(path), str(_SOURCE)]
    subprocess.run(words, check=True)
    with path.open("r+b") as file:
        file.seek(_FIRST * _SECTOR)
        for number in range(_FIRST, count):
            file.write(struct.pack("<I", number) * (_SECTOR // 4))
    return path


@dataclass(kw_only=True)
class Reader:
    """What it says: ``.`` for all that was right, E for an error, X for what is wrong, P for a
    pass over all of its disk."""

    millpond: Millpond
    id: str
    seen: list[float] = field(default_factory=list)
    """When it was found to have said something more."""

    @property
    def said(self) -> str:
        return self.millpond.console(self.id).partition("R")[2]

    def wait(self, more: str = ".", count: int = 5, seconds: float = 60) -> None:
        end = self.said.count(more) + count
        try:
            wait_for(lambda: self.said.count(more) >= end, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.said}") from error

    def is_silent(self, seconds: float) -> bool:
        before = self.said
        time.sleep(seconds)
        return self.said == before

    def check(self) -> None:
        assert not set(self.said) - {".", "P"}, self.said

    @contextmanager
    def watched(self) -> Iterator[list[float]]:
        """The gaps between what it said, once the block has ended."""
        end, gaps = threading.Event(), list[float]()
        thread = threading.Thread(target=self._watch, args=(end,))
        thread.start()
        try:
            yield gaps
        finally:
            end.set()
            thread.join()
            gaps += [after - before for before, after in pairwise(self.seen)]

    def _watch(self, end: threading.Event) -> None:
        last = -1
        while not end.is_set():
            if (now := len(self.said)) != last:
                self.seen.append(time.monotonic())
                last = now
            time.sleep(0.005)
