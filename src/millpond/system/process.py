"""The one way to start a program: a list of words, never a shell, always with limits."""

import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from millpond.errors import ToolFailed
from millpond.model.sizes import GiB

LOG = logging.getLogger(__name__)

_CONFINE = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import confine; "
    "confine.main(sys.argv[1:])"
)
"""Imported, because a script would be compiled for every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A hostile image made qemu-img run for minutes and to 980 MB (trap 4); an
    honest `info` needs a tenth of a second and 40 MB."""

    seconds: int = 60
    memory: int = 1 * GiB
    cpu_seconds: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """All that a tool gets which reads bytes that are not ours. Paths are absolute, and what is
    written to is there already."""

    reads: Sequence[Path] = ()
    writes: Sequence[Path] = ()
    network: bool = False
    """Only for a tool that reaches its bytes by the network itself."""


Watch = Callable[[str], None]
"""Told each line that a program prints, when it prints it; a bar's ends in a carriage return."""

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_PIECE = 1024 * 1024

_SYSTEMD = Path("/run/systemd/system")
"""sd_booted(3): it is there where systemd is the init system."""
_SCOPE = ("systemd-run", "--scope", "--quiet", "--collect", "--slice=system.slice", "--")


def attend(program: str, *words: str) -> None:
    """Wait for a program that a person uses, on our terminal and without limits."""
    LOG.debug("%s", " ".join((program, *words)))
    try:
        code = subprocess.run([program, *words], check=False).returncode
    except OSError as error:
        raise ToolFailed(program, error.strerror or str(error)) from error
    if code:
        raise ToolFailed(program, f"it ended with status {code}")


def become(program: str, *words: str) -> NoReturn:
    """This process goes on as that program, with our terminal and without limits: for a person
    who talks to it."""
    LOG.debug("%s", " ".join((program, *words)))
    try:
        os.execvp(program, [program, *words])
    except OSError as error:
        raise ToolFailed(program, error.strerror or str(error)) from error


def run_ours(words: Sequence[str]) -> None:
    """A command of our own to its end, however long it takes, in our environment."""
    LOG.debug("running %s", words)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolFailed(words[0], error.strerror or str(error)) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[0] if lines else f"exit status {done.returncode}"
        raise ToolFailed(words[0], reason, done.returncode)


def start(words: Sequence[str], log: Path) -> None:
    """A program that outlives us: in a session of its own and, where systemd runs, in a scope of
    its own, because a service that ends takes all with it that it has started. It has our
    environment, and prints to the end of ``log``."""
    LOG.debug("starting %s", words)
    scope = _SCOPE if _SYSTEMD.exists() and os.geteuid() == 0 else ()
    with open(log, "ab", opener=_private) as output:
        try:
            subprocess.run(
                ["setsid", "--fork", *scope, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",  # it must keep nobody from unmounting a file system
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ToolFailed("setsid", f"{words[0]} cannot be started: {error}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


QUICK = Limits()
CONVERSION = Limits(seconds=6 * 3600, cpu_seconds=4 * 3600, memory=2 * GiB)


def run(
    words: list[str],
    limits: Limits = QUICK,
    handed: Handed | None = None,
    watch: Watch | None = None,
) -> str:
    """Run a program to its end and return what it printed, or raise what went wrong. With
    ``handed`` it is confined to that: an unprivileged user, no other files, no other process."""
    LOG.debug("running %s", words)
    try:
        with _watching(watch) as output:
            done = subprocess.run(
                [*(_limiter(limits) if handed is None else _confiner(limits, handed)), *words],
                stdout=output,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=limits.seconds,
                env=_ENVIRONMENT,
                check=False,
            )
    except FileNotFoundError as error:
        raise ToolFailed("setpriv", "it is not installed (package util-linux)") from error
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(words[0], f"it was stopped after {limits.seconds} s") from error
    if done.returncode:
        raise ToolFailed(words[0], _reason(done.returncode, done.stderr), done.returncode)
    return done.stdout or ""


@contextmanager
def _watching(watch: Watch | None) -> Iterator[int]:
    """Where a program prints to, for the block."""
    if watch is None:
        yield subprocess.PIPE
        return
    reading, writing = os.pipe()
    # Ctrl-C may come between any two lines here: nobody waits for the reader at the very end.
    reader = threading.Thread(target=_tell, args=(reading, watch), daemon=True)
    try:
        reader.start()
        yield writing
    finally:
        os.close(writing)
        if reader.ident:
            reader.join()


def _tell(reading: int, watch: Watch) -> None:
    with open(reading, errors="replace", newline=None) as lines:  # a carriage return ends one, too
        for line in lines:
            watch(line.strip())


class Filter:
    """A program that is fed bytes, and what it makes of them, while it runs; confined as in
    run(). Its seconds are those in which it neither takes nor makes any."""

    def __init__(self, words: list[str], limits: Limits, handed: Handed) -> None:
        self._words = words
        self._seconds = limits.seconds
        self._process = subprocess.Popen(
            [*_confiner(limits, handed), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        rest = memoryview(chunk)
        while rest:
            if self._has_output([self._input]):
                if not (piece := os.read(self._output, _PIECE)):
                    raise self._failure()
                yield piece
            else:
                rest = rest[self._write(rest) :]

    def _has_output(self, inputs: Sequence[int] = ()) -> bool:
        """Or it takes more input."""
        readable, writable, _ = select.select([self._output], inputs, [], self._seconds)
        if not readable and not writable:
            raise self._stuck()
        return bool(readable)

    def _write(self, content: memoryview) -> int:
        try:
            return os.write(self._input, content)
        except BrokenPipeError as error:
            raise self._failure() from error

    def finish(self) -> Iterator[bytes]:
        """What it makes of the end."""
        assert self._process.stdin
        self._process.stdin.close()
        while self._has_output() and (piece := os.read(self._output, _PIECE)):
            yield piece
        try:
            failed = self._process.wait(self._seconds)
        except subprocess.TimeoutExpired as error:
            raise self._stuck() from error
        if failed:
            raise self._failure()

    def close(self) -> None:
        """It ends, if it has not."""
        with self._process:
            self._process.kill()

    def _stuck(self) -> ToolFailed:
        self._process.kill()
        return ToolFailed(self._words[0], f"it was stopped after {self._seconds} s without a byte")

    def _failure(self) -> ToolFailed:
        assert self._process.stderr
        self._process.kill()  # zstd 1.5.4 may wait for ever for a thread of its own
        said = self._process.stderr.read().decode(errors="replace")
        code = self._process.wait()
        return ToolFailed(self._words[0], _reason(code, said), code)


def _limiter(limits: Limits) -> list[str]:
    """util-linux's prlimit sets the limits and becomes the program: a preexec_fn would run
    Python between fork and exec, which may hang in a process that has threads. setpriv lets the
    program end with us, however we end: else it would go on, with locks on what it has open."""
    ends_with_us = ["setpriv", "--pdeathsig", "KILL", "--"]
    within = [f"--as={limits.memory}", f"--cpu={limits.cpu_seconds}", "--core=0", "--"]
    return [*ends_with_us, "prlimit", *within]


def _confiner(limits: Limits, handed: Handed) -> list[str]:
    """Sets the limits by itself: each program that is put in front takes a few milliseconds."""
    return [
        *(sys.executable, "-I", "-S", "-c", _CONFINE),
        *(f"parent={os.getpid()}", f"network={handed.network:d}"),
        *(f"memory={limits.memory}", f"cpu={limits.cpu_seconds}"),
        *(f"read={each}" for each in handed.reads),
        *(f"write={each}" for each in handed.writes),
        "--",
    ]


def _reason(code: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    if lines:
        return lines[-1].strip()
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
