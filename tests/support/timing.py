"""How long a command takes, as against a program that loads the same libraries and does nothing.

Both are measured in turns, so that whatever else the machine does slows down both.
"""

import subprocess
import sys
import time
from collections.abc import Callable

_FLOOR = "import typer, libvirt, oslo_config.cfg, msgspec, lxml.etree, stevedore"


def timed(act: Callable[[], object]) -> float:
    before = time.monotonic()
    act()
    return time.monotonic() - before


def floor() -> float:
    return timed(lambda: subprocess.run([sys.executable, "-c", _FLOOR], check=True))
