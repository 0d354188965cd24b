"""An image of which a part is here: what is asked for is fetched, verified and kept."""

import logging
import threading
import time
from collections.abc import Callable

from millpond.errors import MillpondError
from millpond.images.index import INDEX_CHUNK
from millpond.templates.streams.chunk_file import ChunkFile

LOG = logging.getLogger(__name__)

ReadPart = Callable[[int, int], bytes]
"""So many bytes of the image from an offset on, as its source gives them: anything, until they are
verified. Raises MillpondError where it gives none."""

_TRIES = 5
_PAUSE = 0.2
"""Seconds after the first try; each time twice as long."""


class ArrivingImage:
    def __init__(self, file: ChunkFile, read_part: ReadPart) -> None:
        self._file = file
        self._read_part = read_part
        self._on_its_way: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._waiting = 0
        """Readers whom the fill lets go first."""

    def read(self, offset: int, length: int) -> bytes:
        """For a guest, or for inspection. Raises OSError where no source gives the right bytes."""
        with self._lock:
            self._waiting += 1
        try:
            for number in range(offset // INDEX_CHUNK, -(-(offset + length) // INDEX_CHUNK)):
                self._need(number)
        finally:
            with self._lock:
                self._waiting -= 1
        return self._file.read(offset, length)

    def fill(self, rate: int, stopped: threading.Event) -> bool:
        """All that is missing, at most ``rate`` bytes a second; 0 sets no bound. Whether all of it
        is there; what cannot be had now is left for the next time."""
        for number in self._file.missing():
            while self._waiting and not stopped.wait(0.01):
                pass  # who waits for a chunk has the whole line
            if stopped.is_set():
                return False
            began = time.monotonic()
            try:
                self._need(number)
            except OSError as error:
                LOG.warning("chunk %s is left for later: %s", number, error)
            if rate:
                stopped.wait(self._file.length(number) / rate - (time.monotonic() - began))
        return not self._file.missing()

    def _need(self, number: int) -> None:
        """However many need it at once, it is fetched once."""
        if self._file.has(number):
            return
        with self._lock:
            turn = self._on_its_way.setdefault(number, threading.Lock())
        with turn:
            if not self._file.has(number):
                self._file.put(number, self._fetch(number))
        with self._lock:
            self._on_its_way.pop(number, None)

    def _fetch(self, number: int) -> bytes:
        reason = ""
        for tried in range(_TRIES):
            if tried:
                time.sleep(_PAUSE * 2 ** (tried - 1))
            try:
                content = self._read_part(number * INDEX_CHUNK, self._file.length(number))
            except MillpondError as error:
                reason = str(error)
                continue
            if self._file.is_right(number, content):
                return content
            reason = f"its source gives other bytes than the index has at {number * INDEX_CHUNK}"
            LOG.warning("%s", reason)
        raise OSError(reason)
