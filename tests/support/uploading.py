"""A program that dies by SIGKILL in the middle of carrying a template to its host."""

import os
import signal
from pathlib import Path

from millpond.fleet import Fleet
from millpond.model.formats import DiskFormat

_PIECES = 20


def die(config: str, name: str) -> None:
    engine = Fleet.load([Path(config)]).engine()
    done = []

    def progress(count: int) -> None:
        done.append(count)
        if len(done) == _PIECES:
            os.kill(os.getpid(), signal.SIGKILL)

    engine.cache.templates.fetch_image(engine.images.get(name), DiskFormat.RAW, progress)
