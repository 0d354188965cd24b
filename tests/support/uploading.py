"""A program that dies by SIGKILL in the middle of carrying a template to its host."""

import os
import signal
from pathlib import Path

from millpond.hosts.deployment import Deployment
from millpond.model.formats import DiskFormat

_PIECES = 20


def die(config: str, name: str) -> None:
    host = Deployment.load([Path(config)]).host()
    done = []

    def progress(count: int) -> None:
        done.append(count)
        if len(done) == _PIECES:
            os.kill(os.getpid(), signal.SIGKILL)

    host.handlers.chosen.fetch_image(host.images.get(name), DiskFormat.RAW, progress)
