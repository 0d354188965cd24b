"""``python -m millpond.templates.streams.serve DIRECTORY``: the process that serves a stream.

It ends when its plan is gone, or when its template is published and nobody reads from it any more.
Killed, it leaves what the map marks, and a free lock: whoever finds that starts it again.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millpond.errors import Busy, ImageRefused, MillpondError, ToolFailed
from millpond.model.stream import ReadPart, StreamStatus
from millpond.system.http import Resource
from millpond.system.process import run_ours
from millpond.templates.streams.arriving import ArrivingImage
from millpond.templates.streams.chunk_file import ChunkFile
from millpond.templates.streams.nbd import NbdServer
from millpond.templates.streams.plan import StreamDirectory, StreamPlan

LOG = logging.getLogger(__name__)

OpenSource = Callable[[StreamPlan], ReadPart]

_BEAT = 1.0
"""Seconds between two looks at what is to be done."""
_AGAIN = (2.0, 60.0)
"""Seconds until what failed is tried again; each time twice as long, up to the second one."""


def open_url(plan: StreamPlan) -> ReadPart:
    return Resource(plan.url, plan.patience).part


def serve(path: Path, open_source: OpenSource) -> None:
    """One process a directory: Busy is raised where there is one."""
    directory = StreamDirectory(path)
    with directory.hold():
        plan, file = directory.open()
        was_begun = file.is_begun
        image = ArrivingImage(file, open_source(plan))
        server = NbdServer(plan.socket, plan.size, image.read, plan.reader)
        stopped = threading.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: stopped.set())
        if was_begun:
            image.failed.set()  # guests may have met an error while nobody was here
        work = _Work(directory, plan, file, image, server)
        for each_work in (server.serve, lambda: work.fill(stopped), lambda: work.settle(stopped)):
            threading.Thread(target=each_work, daemon=True).start()
        work.watch(stopped)
        server.close()
        with suppress(OSError):
            file.sync()
        if work.is_done:
            plan.socket.unlink(missing_ok=True)
            directory.remove()


class _Work:
    def __init__(
        self,
        directory: StreamDirectory,
        plan: StreamPlan,
        file: ChunkFile,
        image: ArrivingImage,
        server: NbdServer,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._file = file
        self._image = image
        self._server = server
        self._trouble = ""
        """What keeps its template from being published, in words."""
        self._is_refused = False
        """What is whole is not the image that was stated."""
        self._settled = False
        self.is_done = False

    def watch(self, stopped: threading.Event) -> None:
        """Until it is to end: keep what has come, and say how it goes."""
        alone_since = time.monotonic()
        while not stopped.wait(_BEAT):
            if not self._directory.is_wanted:
                return
            self._sync()
            self._directory.note(self._status())
            if self._server.connected or not self._settled:
                alone_since = time.monotonic()
            if time.monotonic() - alone_since > self._plan.linger:
                self.is_done = True
                return

    def fill(self, stopped: threading.Event) -> None:
        stopped.wait(self._plan.fill_delay)
        self._image.fill_until_whole(self._plan.fill_rate, stopped)

    def settle(self, stopped: threading.Event) -> None:
        """Guests that had to wait go on; what is whole is published, and left by who reads it."""
        pause, longest = _AGAIN
        while not self._settled and not stopped.wait(_BEAT):
            goes_on = self._image.failed.is_set() and not self._image.waits_for
            is_whole = self._file.is_whole
            if not goes_on and not is_whole:
                continue
            self._image.failed.clear()
            if self._run_settle():
                self._settled = is_whole
                pause = _AGAIN[0]
                continue
            if self._is_refused and (wrong := self._file.forget_wrong()):
                LOG.warning("%s chunks were damaged on disk, and are fetched again", wrong)
                self._image.fill_until_whole(self._plan.fill_rate, stopped)
            self._image.failed.set()
            stopped.wait(pause)
            pause = min(2 * pause, longest)

    def _run_settle(self) -> bool:
        self._sync()
        try:
            run_ours(self._plan.settle)
        except ToolFailed as error:
            self._is_refused = error.status == ImageRefused.exit_code
            if self._file.is_whole and error.reason != self._trouble:
                LOG.warning("it is not published yet: %s", error.reason)
                self._trouble = error.reason
            return False
        self._trouble, self._is_refused = "", False
        return True

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            LOG.warning("what has come cannot be kept: %s", error)

    def _status(self) -> StreamStatus:
        return StreamStatus(
            arrived=self._file.arrived,
            size=self._plan.size,
            waits_for=self._image.waits_for or self._trouble,
            fetched=self._image.fetched,
            connected=self._server.connected,
        )


def main(path: Path, open_source: OpenSource = open_url) -> None:
    """It has a log of its own, and what it says is for people."""
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("urllib3").setLevel(logging.WARNING)  # it logs whole URLs
    try:
        serve(path, open_source)
    except Busy:
        LOG.info("another process serves it")
    except (MillpondError, OSError) as error:
        LOG.error("%s", error)
        logging.shutdown()
        os._exit(1)
    logging.shutdown()
    os._exit(0)  # a thread may wait for a source that does not answer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
