"""tools/fresh/run: the machine that it makes goes with it."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]

_WORK = "millpond-fresh.*"
_REASON = "it installs Debian by mmdebstrap, as root: tools/setup nested-packages"
_SECONDS = 60


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason=_REASON)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="it takes what is committed: git clone")
def test_a_killed_run_leaves_no_process_and_no_directory():
    before = _directories()
    running = subprocess.Popen([ROOT / "tools/fresh/run"], start_new_session=True)
    wait_for(
        lambda: any((each / "root/usr").exists() for each in _directories() - before), _SECONDS
    )
    (work,) = _directories() - before
    assert _processes(work)
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_for(lambda: not work.exists(), _SECONDS)
    assert _processes(work) == []


def _directories() -> set[Path]:
    return set(Path("/var/tmp").glob(_WORK))


def _processes(work: Path) -> list[bytes]:
    """Those that name it on their command line: what installs Debian there does."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(file.read_bytes())
    return [words for words in found if bytes(work) in words]
