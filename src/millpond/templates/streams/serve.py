"""``python -m millpond.templates.streams.serve DIRECTORY``: the process that serves a stream.

SIGTERM ends it. Killed in any other way it leaves what the map marks, and a free lock: whoever
finds that starts it again.
"""

import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import DamagedRecord
from millpond.images.index import read_index
from millpond.model.transfer import Patience
from millpond.records import codec
from millpond.system.http import Resource
from millpond.system.locks import Locks
from millpond.templates.streams.arriving import ArrivingImage
from millpond.templates.streams.chunk_file import ChunkFile
from millpond.templates.streams.nbd import NbdServer

SCHEMA = 1
PLAN, LIST, PART = "stream.json", "index", "part"
LOCK = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What is written down before the process is started."""

    url: str
    size: int
    root: str
    socket: Path
    fill_rate: int = 0
    """Bytes a second; 0 sets no bound."""
    patience: Patience
    schema: int = SCHEMA


def serve(directory: Path) -> None:
    """One process a directory: Busy is raised where there is one."""
    path = directory / PLAN
    plan = codec.decode(path.read_bytes(), StreamPlan, path, SCHEMA)
    with Locks(directory / "locks").hold_now(LOCK, str(directory)):
        index = read_index(directory / LIST, plan.size, plan.root)
        if index is None:
            raise DamagedRecord(directory / LIST, "it is not the list that the root is of")
        file = ChunkFile(directory / PART, index)
        image = ArrivingImage(file, Resource(plan.url, plan.patience).part)
        server = NbdServer(plan.socket, plan.size, image.read)
        stopped = threading.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: stopped.set())
        for work in (server.serve, lambda: _fill(image, plan.fill_rate, stopped)):
            threading.Thread(target=work, daemon=True).start()
        while not stopped.wait(1):
            file.sync()
        server.close()
        file.sync()


def _fill(image: ArrivingImage, rate: int, stopped: threading.Event) -> None:
    while not stopped.is_set() and not image.fill(rate, stopped):
        stopped.wait(1)


if __name__ == "__main__":
    os.umask(0o027)
    serve(Path(sys.argv[1]))
