"""nova-compute with our driver, which dies by SIGKILL at one moment of one step:
`python mortal_compute.py VERB STEP MOMENT [words of nova-compute]`.

The steps are those that the host tells of, and "driver METHOD": any method of the driver that
Nova calls, the one that begins after all disks are made being _create_guest_with_network.
"""

import functools
import os
import signal
import sys
import types
from typing import Any

from millpond.nova import compute  # the first: it sets up threads as Nova has them
from millpond.nova.driver import MillpondDriver

_AT = sys.argv[1:4]


def watch(*where: str) -> None:
    if list(where) == _AT:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalDriver(MillpondDriver):
    watch = staticmethod(watch)


def _make_mortal(name: str) -> None:
    method = getattr(MillpondDriver, name)

    @functools.wraps(method)
    def mortal(*args: Any, **kwargs: Any) -> Any:
        watch("driver", name, "begin")
        result = method(*args, **kwargs)
        watch("driver", name, "end")
        return result

    setattr(MortalDriver, name, mortal)


if __name__ == "__main__":
    if _AT[0] == "driver":
        _make_mortal(_AT[1])
    module: Any = types.ModuleType("nova.virt.millpond")
    module.MillpondDriver = MortalDriver
    sys.modules[module.__name__] = module
    del sys.argv[1:4]
    compute.main()
