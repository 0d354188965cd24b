"""Programs of ours in processes of their own that need not load anything: each is forked from one
that has. Where the loading itself is looked at, tests start the real command."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from millpond.cli.main import main

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        __name__,
        "millpond.cli.cache",
        "millpond.cli.doctor",
        "millpond.cli.image_add",
        "millpond.cli.pool",
        "millpond.cli.server_create",
        "millpond.cli.server_snapshot",
        "millpond.hosts.host",
        "millpond.hosts.deployment",
        "millpond.images.glance",
        "millpond.scheduling.embedded",
        "millpond.templates.links.linking",
        "tests.support.killer",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A signal that a program gets if it still runs after so many seconds."""

    seconds: float
    signal: signal.Signals


def run(
    program: Callable[[], object],
    words: Sequence[str],
    seconds: float,
    interruption: Interruption | None = None,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run() would answer; sys.argv is what the program finds its words in."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        process = _CONTEXT.Process(
            target=_become, args=(program, words, dict(os.environ), os.getcwd(), (out, err))
        )
        process.start()
        try:
            if interruption:
                process.join(interruption.seconds)
                _interrupt(process, interruption.signal)
            process.join(seconds)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(words, seconds, *map(_text, (out, err)))
            return subprocess.CompletedProcess(words, process.exitcode, _text(out), _text(err))
        finally:
            process.kill()
            process.join()
            process.close()


def _interrupt(process: BaseProcess, number: signal.Signals) -> None:
    if process.exitcode is None and process.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def command(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    return run(_command, ["millpond", *words], seconds)


def _command() -> None:
    sys.exit(main())


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _become(
    program: Callable[[], object],
    words: Sequence[str],
    environment: dict[str, str],
    directory: str,
    files: tuple[Path, Path],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for number, path in enumerate(files, start=1):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = list(words)
    program()
