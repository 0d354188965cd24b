"""A command on a terminal, as a person sees and types it."""

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(kw_only=True)
class Terminal:
    """What stands on it, and whom it belongs to."""

    process: subprocess.Popen[bytes]
    descriptor: int
    shown: str = ""
    _seen: int = 0

    def wait_for(self, text: str, seconds: float = 30, *, typing: str = "") -> None:
        """After what was waited for before. Somebody may type the same again and again until it
        is there: what is typed before a program has made its terminal raw is lost."""
        end = time.monotonic() + seconds
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < end, self.shown
            self.type(typing)
            self._read()
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def finish(self, seconds: float = 30) -> int:
        """Its exit status; all that it has shown is in ``shown`` by then."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, self.shown
        return self.process.wait(seconds)

    def _read(self) -> bool:
        """Whether more may come."""
        if not select.select([self.descriptor], [], [], 1)[0]:
            return True
        with contextlib.suppress(OSError):  # how a terminal ends
            if piece := os.read(self.descriptor, 65536):
                self.shown += _COLOURS.sub("", piece.decode(errors="replace"))
                return True
        return False


@contextlib.contextmanager
def open_terminal(words: Sequence[object]) -> Iterator[Terminal]:
    """The command has a terminal of its own, whose Ctrl-C reaches it alone."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    try:
        yield Terminal(process=process, descriptor=ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
