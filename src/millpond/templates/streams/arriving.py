"""An image of which a part is here: what is asked for is fetched, verified and kept."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from millpond.errors import MillpondError
from millpond.images.index import INDEX_CHUNK
from millpond.model.stream import ReadPart
from millpond.templates.streams.chunk_file import ChunkFile

LOG = logging.getLogger(__name__)

GUESTS_WAIT = 20.0
"""Seconds that a guest's read waits for its source. After that it fails, and QEMU pauses the
guest: as long as a read is under way, nobody can pause or stop it."""
_PAUSES = (0.2, 3.0)
"""Seconds after the first try; each time twice as long, up to the second one."""
_AT_ONCE = 4
"""Chunks of one request ahead of need: few, since a guest's read may wait for them."""
_LATER = (1.0, 30.0)
"""Seconds until what could not be had is asked for again ahead of need."""
_GIVEN_UP = 3
"""Failures in a row after which the source is left alone for a while."""


class _WrongBytes(Exception):
    """Of a source, whatever the reason."""


class ArrivingImage:
    def __init__(
        self, file: ChunkFile, read_part: ReadPart, patience: float = GUESTS_WAIT
    ) -> None:
        self._file = file
        self._read_part = read_part
        self._patience = patience
        self._on_its_way: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        self._waiting = 0
        """Readers whom the fill lets go first."""
        self.fetched = 0
        """Bytes that the source has given, right or wrong."""
        self.waits_for = ""
        """Why the last thing that was asked for did not come; empty once something did."""
        self.failed = threading.Event()
        """Set when a reader was given an error: whoever resumes guests clears it."""

    def read(self, offset: int, length: int) -> bytes:
        """For a guest, or for inspection. Raises OSError where no source gives the right bytes."""
        until = time.monotonic() + self._patience
        with self._lock:
            self._waiting += 1
        try:
            for number in range(offset // INDEX_CHUNK, -(-(offset + length) // INDEX_CHUNK)):
                self._need(number, until)
        except OSError:
            self.failed.set()
            raise
        finally:
            with self._lock:
                self._waiting -= 1
        return self._file.read(offset, length)

    def fill(self, rate: int, stopped: threading.Event) -> bool:
        """All that is missing, at most ``rate`` bytes a second; 0 sets no bound. Whether all of it
        is there; what cannot be had now is left for the next time."""
        failures = 0
        for run in _runs(self._file.missing()):
            while self._waiting and not stopped.wait(0.01):
                pass  # who waits for a chunk has the whole line
            if stopped.is_set() or failures >= _GIVEN_UP:
                return False
            began = time.monotonic()
            failures = 0 if self._try(run) else failures + 1
            if rate:
                length = sum(map(self._file.length, run))
                stopped.wait(length / rate - (time.monotonic() - began))
        return not self._file.missing()

    def fill_until_whole(self, rate: int, stopped: threading.Event) -> None:
        """What could not be had is asked for again, less and less often."""
        pause, longest = _LATER
        before = -1
        while not stopped.is_set() and not self.fill(rate, stopped):
            missing = len(self._file.missing())
            pause = _LATER[0] if missing != before else min(2 * pause, longest)
            before = missing
            stopped.wait(pause)

    def _need(self, number: int, until: float) -> None:
        """However many need it at once, it is fetched once."""
        pause, longest = _PAUSES
        while not self._try([number]):
            if time.monotonic() + pause > until:
                raise OSError(self.waits_for)
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _try(self, run: Sequence[int]) -> bool:
        """Whether all of these neighbours are there."""
        if all(map(self._file.has, run)):
            return True
        try:
            with ExitStack() as turns:
                for number in run:
                    turns.enter_context(self._turn(number))
                if not all(map(self._file.has, run)):
                    self._fetch(run)
        except (MillpondError, OSError, _WrongBytes) as error:
            self._complain(str(error))
            return False
        if self.waits_for:
            LOG.info("it goes on")
        self.waits_for = ""
        return True

    @contextmanager
    def _turn(self, number: int) -> Iterator[None]:
        with self._lock:
            turn = self._on_its_way.setdefault(number, threading.Lock())
        with turn:
            try:
                yield
            finally:
                with self._lock:
                    self._on_its_way.pop(number, None)

    def _fetch(self, run: Sequence[int]) -> None:
        """Each chunk that is right is kept, whatever its neighbours are."""
        lengths = [self._file.length(number) for number in run]
        content = self._read_part(run[0] * INDEX_CHUNK, sum(lengths))
        self.fetched += len(content)
        is_more = len(content) > sum(lengths)
        wrong = []
        for number, length in zip(run, lengths, strict=True):
            at = (number - run[0]) * INDEX_CHUNK
            if is_more or not self._file.put(number, content[at : at + length]):
                wrong.append(number * INDEX_CHUNK)
        if self._file.is_sync_due:
            self._file.sync()
        if wrong:
            raise _WrongBytes(f"its source gives other bytes than its index has at {wrong[0]}")

    def _complain(self, reason: str) -> None:
        if reason != self.waits_for:
            LOG.warning("%s", reason)
        self.waits_for = reason


def _runs(missing: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours, to be asked for at once."""
    run: list[int] = []
    for number in missing:
        if run and (number != run[-1] + 1 or len(run) == _AT_ONCE):
            yield run
            run = []
        run.append(number)
    if run:
        yield run
