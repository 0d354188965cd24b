"""Prints what our driver overrides of Nova's classes, as JSON: `python overrides.py`.

Class and method, and the signature that the installed Nova has.
"""

import inspect
import json
from collections.abc import Iterator

from nova.virt.libvirt import config, imagebackend
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.nova.driver import MillpondDriver
from millpond.nova.evacuation import SavesServers
from millpond.nova.images import GuestDisk, PoolBackend, VolumeImage
from millpond.nova.live_moves import MovesRunningServers
from millpond.nova.moves import ResizesServers

_PAIRS = (
    (MillpondDriver, LibvirtDriver),
    (ResizesServers, LibvirtDriver),
    (MovesRunningServers, LibvirtDriver),
    (SavesServers, LibvirtDriver),
    (VolumeImage, imagebackend.Image),
    (PoolBackend, imagebackend.Backend),
    (GuestDisk, config.LibvirtConfigGuestDisk),
)


def overrides() -> Iterator[tuple[str, str]]:
    for ours, theirs in _PAIRS:
        for name in vars(ours):
            method = inspect.getattr_static(theirs, name, None)
            if (name.startswith("__") and name != "__init__") or method is None:
                continue
            function = getattr(method, "__func__", method)
            if inspect.isfunction(function):
                yield f"{theirs.__name__}.{name}", str(inspect.signature(function))


if __name__ == "__main__":
    print(json.dumps(dict(overrides())))
