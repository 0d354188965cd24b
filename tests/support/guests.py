"""The guests that tests boot."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_TOOLS = Path(__file__).parents[2] / "tools/guests"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroGuest:
    """A raw image of 1 MiB whose guest prints its marker, counts its boots and says READY."""

    path: Path
    marker: str


def build_micro_guest(
    path: Path, *, marker: str, clock: int = 18, scribbles: bool = False
) -> MicroGuest:
    """It ticks after so many interrupts of its clock: 18 are a second. One that scribbles writes
    to its memory all the time: 9 MiB a second."""
    if shutil.which("nasm") is None:
        pytest.skip("the micro guest is built by nasm: apt-get install nasm")
    words = [str(_TOOLS / "build-micro"), str(path), marker, str(clock)]
    subprocess.run([*words, *(["SCRIBBLES"] if scribbles else [])], check=True)
    path.chmod(0o444)
    return MicroGuest(path=path, marker=marker)
