"""The one way to start a program: a list of words, never a shell, always with limits."""

import logging
import subprocess
from dataclasses import dataclass

from millpond.errors import ToolFailed
from millpond.model.sizes import GiB

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A hostile image made qemu-img run for minutes and to 980 MB (lab: a backing file that
    names itself); an honest `info` needs a tenth of a second and 40 MB."""

    seconds: int = 60
    memory: int = 1 * GiB
    cpu_seconds: int = 60


QUICK = Limits()
CONVERSION = Limits(seconds=6 * 3600, cpu_seconds=4 * 3600, memory=2 * GiB)


def run(words: list[str], limits: Limits = QUICK) -> str:
    """Run a program to its end and return what it printed, or raise what went wrong."""
    LOG.debug("running %s", words)
    try:
        done = subprocess.run(
            [*_limiter(limits), *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=limits.seconds,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except FileNotFoundError as error:
        raise ToolFailed("setpriv", "it is not installed (package util-linux)") from error
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(words[0], f"it was stopped after {limits.seconds} s") from error
    if done.returncode:
        raise ToolFailed(words[0], _reason(done.returncode, done.stderr), done.returncode)
    return done.stdout


def _limiter(limits: Limits) -> list[str]:
    """util-linux's prlimit sets the limits and becomes the program: a preexec_fn would run
    Python between fork and exec, which may hang in a process that has threads. setpriv lets the
    program end with us, however we end: else it would go on, with locks on what it has open."""
    ends_with_us = ["setpriv", "--pdeathsig", "KILL", "--"]
    within = [f"--as={limits.memory}", f"--cpu={limits.cpu_seconds}", "--core=0", "--"]
    return [*ends_with_us, "prlimit", *within]


def _reason(code: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    if lines:
        return lines[-1].strip()
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
