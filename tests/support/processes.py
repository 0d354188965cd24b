"""Processes, each ended by its id and only while it is provably the one that was meant."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.waiting import wait_for

Belongs = Callable[[int], bool]

_RUNNER = Path(__file__).with_name("daemon_runner.py")
_PATIENCE = 3.0


class Daemon:
    """A program under daemon_runner.py; `pid` is the program's own.

    `enter` is the command that becomes the words given after it (nsenter, say).
    """

    def __init__(
        self, words: Sequence[str], *, enter: Callable[..., list[str]], log: Path
    ) -> None:
        with log.open("ab") as output:
            self._runner = subprocess.Popen(
                enter(sys.executable, "-I", "-S", str(_RUNNER), *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                umask=0o022,
                start_new_session=True,  # Ctrl-C is for pytest, which then ends us in order
            )
        assert self._runner.stdout is not None
        with self._runner.stdout as answer:
            self.pid = int(answer.readline() or 0)
        try:
            self._process = os.pidfd_open(self.pid)
        except OSError as error:
            raise RuntimeError(f"{words[0]} ended at once: {log.read_text()[-2000:]}") from error

    @property
    def is_alive(self) -> bool:
        return not self._ended_within(0)

    def end(self, number: signal.Signals, seconds: float) -> None:
        """Send the signal and wait for the end of the program, not of what it started."""
        if self.is_alive:
            signal.pidfd_send_signal(self._process, number)
        if not self._ended_within(seconds):
            raise RuntimeError(f"process {self.pid} goes on {seconds} s after {number.name}")

    def forget(self) -> None:
        """When the runner has ended, too."""
        self._runner.wait(_PATIENCE)
        os.close(self._process)

    def _ended_within(self, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._process, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))


def end_processes(belongs: Belongs, first: signal.Signals = signal.SIGTERM) -> None:
    """A signal to every process that belongs, then SIGKILL to those that stay."""
    _signal_each(belongs, first)
    try:
        wait_for(lambda: not list(find_pids(belongs)), _PATIENCE)
    except AssertionError:
        wait_for(lambda: not _signal_each(belongs, signal.SIGKILL), _PATIENCE)


def _signal_each(belongs: Belongs, number: signal.Signals) -> list[int]:
    return [pid for pid in find_pids(belongs) if _signal(pid, belongs, number)]


def _signal(pid: int, belongs: Belongs, number: signal.Signals) -> bool:
    # A pidfd names one process for ever; asking again after it is open rules out that the
    # number has gone to a stranger in between.
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not belongs(pid):
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def find_pids(belongs: Belongs) -> Iterator[int]:
    """The id of every process that belongs."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and belongs(int(entry.name)):
            yield int(entry.name)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def name_of(pid: str) -> str | None:
    """None when it has ended, whether or not anybody has asked how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    name, _, rest = state.partition("(")[2].rpartition(")")
    return None if rest.split()[0] == "Z" else name
