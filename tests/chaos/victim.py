"""A command that is ended in the middle: at a step of its operation, between two calls of the
system, or at some moment.

Steps and calls are counted by the interpreter's profile hook, so nothing of Millpond is patched,
and what a number meant once it means again.
"""

import io
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from signal import Signals
from types import FrameType
from typing import Any

from millpond.cli.main import main as millpond
from millpond.model.callbacks import noop
from millpond.records.journal import StepMoment
from tests.support import forked
from tests.support.forked import Interruption

_HANGS_AFTER = 90
"""Seconds. A command takes one; the machine may be busy."""
_CALLS = frozenset(
    f"posix.{name}"
    for name in (
        "chmod",
        "chown",
        "close",
        "copy_file_range",
        "fchmod",
        "fchown",
        "fsync",
        "ftruncate",
        "link",
        "mkdir",
        "open",
        "pwrite",
        "rename",
        "replace",
        "rmdir",
        "truncate",
        "unlink",
        "write",
    )
) | {"fcntl.fcntl", "fcntl.ioctl", "_posixsubprocess.fork_exec"}
"""What changes something, or waits for others; and all that libvirt is asked, and writes of
files."""
_COUNTED = 5
"""One in so many of those that are left alone."""
_WRITERS = (io.BufferedWriter, io.FileIO)


class Way(StrEnum):
    """What decides when a command ends."""

    FREE = "free"
    """Nothing does; of some, steps and calls are counted for the next ones of their kind."""
    STEP = "step"
    CALL = "call"
    TIME = "time"
    """The process that started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    way: Way = Way.FREE
    share: float = 1.0
    """How far a command of its kind comes, as far as is known; above 1 it may end by itself."""
    signal: Signals = Signals.SIGKILL

    @classmethod
    def chosen(cls, chance: random.Random, *, free: float) -> "Ending":
        if chance.random() < free:
            return cls()
        way = chance.choices((Way.STEP, Way.CALL, Way.TIME), (3, 5, 3))[0]
        signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
        number = chance.choices(signals, (10, 1, 1))[0]
        return cls(way=way, share=chance.uniform(0, 1.05), signal=number)

    def __str__(self) -> str:
        if self.way is Way.FREE:
            return "free"
        return f"{self.signal.name} by {self.way} at {self.share:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    words: tuple[str, ...]
    ending: Ending
    code: int
    out: str
    err: str
    where: str
    """The last step that it took, and the call before which it was ended."""

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def was_ended(self) -> bool:
        """By a signal, whichever: SIGTERM is 143 and Ctrl-C 130 or 1 where nothing is wrong."""
        return self.was_killed or (self.ending.signal != signal.SIGKILL and self.code != 0)

    def __str__(self) -> str:
        said = f": {self.err.strip().splitlines()[-1]}" if self.err.strip() else ""
        return f"{' '.join(self.words)}  [{self.ending}] -> {self.code} {self.where}{said}"


@dataclass(slots=True)
class Habits:
    """How many steps, calls and seconds commands of a kind have taken."""

    known: dict[str, dict[str, float]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)

    def counts(self, kind: str) -> bool:
        """Whether this one is counted, which costs time."""
        self.runs[kind] += 1
        return self.runs[kind] % _COUNTED == 1

    def number(self, kind: str, ending: Ending) -> float:
        first = {Way.STEP: 8, Way.CALL: 100, Way.TIME: 0.5, Way.FREE: 0}
        return ending.share * self.known.get(kind, {}).get(ending.way, first[ending.way])

    def learn(self, kind: str, found: dict[str, float]) -> None:
        self.known.setdefault(kind, {}).update(found)


def run(config: Path, kind: str, words: Sequence[str], ending: Ending, habits: Habits) -> Outcome:
    """The command in a process of its own, to its end or to the one that was chosen for it."""
    number = habits.number(kind, ending)
    note = config.parent / f".note-{threading.get_ident()}"
    note.unlink(missing_ok=True)
    hooked = ending.way in (Way.STEP, Way.CALL) or (ending.way is Way.FREE and habits.counts(kind))
    interruption = None
    if ending.way is Way.TIME:
        interruption = Interruption(seconds=number, signal=ending.signal)
    told = [ending.way if hooked else Way.TIME, max(1, int(number)), int(ending.signal), note]
    told += ["--config-file", config]
    before = time.monotonic()
    done = forked.run(main, [*map(str, told), *words], _HANGS_AFTER, interruption)
    found = json.loads(note.read_text()) if note.exists() else {}
    if ending.way is Way.FREE and not hooked:
        habits.learn(kind, {Way.TIME: time.monotonic() - before})
    where = found.pop("where", "")
    if found:
        habits.learn(kind, found)
    return Outcome(
        words=tuple(words),
        ending=ending,
        code=done.returncode,
        out=done.stdout,
        err=done.stderr,
        where=where,
    )


class _Hook:
    """Counts, and sends the signal to its own process when the number is reached."""

    def __init__(self, way: Way, number: int, number_of_signal: int, note: Path) -> None:
        self._way = way
        self._left = number
        self._signal = number_of_signal
        self._note = note
        self._step = ""
        self.steps = 0
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is noop.__code__ and _is_step(frame.f_locals["_what"]):
            self.steps += 1
            self._step = " ".join(frame.f_locals["_what"])
            self._count(Way.STEP, "")
        elif event == "c_call" and _changes_something(arg):
            self.calls += 1
            self._count(Way.CALL, arg.__qualname__)

    def _count(self, way: Way, call: str) -> None:
        if way is not self._way:
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            self._note.write_text(json.dumps({"where": f"({self._step}) {call}"}))
            os.kill(os.getpid(), self._signal)


def _is_step(what: tuple[object, ...]) -> bool:
    """Whether a callback was told of a step, as nobody watches them here."""
    return len(what) == 3 and isinstance(what[2], StepMoment)


def _changes_something(function: Any) -> bool:
    module = function.__module__
    if module is None:
        return isinstance(getattr(function, "__self__", None), _WRITERS)
    if module == "libvirtmod":
        return not function.__name__.endswith("Free")  # called by __del__, which ends nothing
    return f"{module}.{function.__name__}" in _CALLS


def main() -> None:
    way, number, number_of_signal, note, *words = sys.argv
    hook = _Hook(Way(way), int(number), int(number_of_signal), Path(note))
    sys.argv = ["millpond", *words]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    if hook_is_needed := Way(way) is not Way.TIME:
        threading.setprofile(hook)
        sys.setprofile(hook)
    try:
        millpond()
    finally:
        sys.setprofile(None)
        if hook_is_needed and not Path(note).exists():
            counted = {Way.STEP: hook.steps, Way.CALL: hook.calls}
            Path(note).write_text(json.dumps(counted))
