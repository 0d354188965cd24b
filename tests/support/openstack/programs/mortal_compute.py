"""nova-compute with our driver, which dies by SIGKILL at one moment of one step:
`python mortal_compute.py VERB STEP MOMENT [words of nova-compute]`.

The steps are those that the host tells of, and "guest start": all disks are there, and the
domain is not.
"""

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

    def _create_guest_with_network(self, *args: Any, **kwargs: Any) -> Any:
        watch("guest", "start", "begin")
        return super()._create_guest_with_network(*args, **kwargs)


if __name__ == "__main__":
    module: Any = types.ModuleType("nova.virt.millpond")
    module.MillpondDriver = MortalDriver
    sys.modules[module.__name__] = module
    del sys.argv[1:4]
    compute.main()
