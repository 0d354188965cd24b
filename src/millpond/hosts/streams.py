"""By what a host streams: its configuration, and the programs that go on without us."""

import sys
from collections.abc import Callable, Sequence

from millpond.config import ImageSourceOption, Settings
from millpond.disks.selection import Selection
from millpond.model.formats import Backend
from millpond.model.image import Image
from millpond.model.stream import StreamAccess


def stream_access(
    settings: Settings, host: str, selection: Selection, reader: Callable[[], int]
) -> StreamAccess:
    cache = settings.image_cache
    serve, settle = _commands(settings, host)

    def find_obstacle(image: Image) -> str:
        choice = selection.choose(image.format)
        if choice.backend is Backend.QCOW2:
            return ""
        return f"its disks are whole copies of it (backend {choice.backend})"

    return StreamAccess(
        sockets=cache.sockets_path,
        reader=reader,
        patience=settings.http,
        fill_rate=cache.fill_rate,
        fill_delay=cache.fill_delay,
        trust_source=cache.trust_source,
        serve=serve,
        settle=settle,
        find_obstacle=find_obstacle,
    )


def _commands(settings: Settings, host: str) -> tuple[Sequence[str], Sequence[str]]:
    """What reads a URL alone needs nothing of the configuration; under Nova, and from Glance,
    programs of their own know who we are there."""
    files = [f"--config-file={each}" for each in settings.config_files]
    python = (sys.executable, "-P", "-m")
    if not settings.own_process:
        program = (*python, "millpond.nova.stream", *files)
        # Nova would give it threads that wait for each other whenever one reads a file.
        native = ("env", "OS_NOVA_DISABLE_EVENTLET_PATCHING=1")
        return (*native, *program, "serve"), (*program, "settle")
    settle = (*python, "millpond.cli.entry", *files, "cache", "settle", f"--host={host}")
    if settings.image_source is ImageSourceOption.CATALOGUE:
        return (*python, "millpond.templates.streams.serve"), settle
    return (*python, "millpond.cli.stream", *files), settle
