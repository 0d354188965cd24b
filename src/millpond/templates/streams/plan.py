"""The directory of a stream, next to the cache: what is to be served, and what of it is here.

    stream.json   the plan; its process ends once this is gone
    index         the SHA-256 of each chunk
    part          the template's file, which becomes the template
    part.map      which chunks of it are there
    status.json   for people, once a second
    log           what its process says
    locks/        one is held as long as a process serves it

Whatever has such a directory is to be served: whoever finds its lock free starts its process.
"""

import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.errors import DamagedRecord, UnreadableRecord
from millpond.images.index import Index, read_index
from millpond.model.names import ImageId
from millpond.model.stream import StreamStatus
from millpond.model.transfer import Digest, Patience
from millpond.records import codec
from millpond.system import files
from millpond.system.locks import Locks
from millpond.templates.streams.chunk_file import ChunkFile

SCHEMA = 1

_LOCK = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What is written down before the process is started."""

    name: str
    """The template's."""
    image: ImageId
    url: str
    """With all that it says, a password, too: nobody but us reads the file. Empty where only the
    image's source can give its bytes."""
    size: int
    root: str
    digest: Digest
    """Of the whole image."""
    socket: Path
    reader: int
    fill_rate: int
    fill_delay: float
    patience: Patience
    settle: tuple[str, ...]
    """The command that publishes the template."""
    linger: float = 60.0
    """Seconds in which nobody reads from what is published, until the process ends: a server that
    is about to start may have been told of the socket before."""
    schema: int = SCHEMA


class StreamDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path / "part"
        self.log = path / "log"
        self._plan = path / "stream.json"
        self._index = path / "index"
        self._status = path / "status.json"
        self._locks = Locks(path / "locks")

    def write(self, plan: StreamPlan, index: Index) -> None:
        """All that its process needs, the plan last."""
        files.write_atomically(self._index, index.digests, 0o600)
        files.write_atomically(self._plan, codec.encode(plan), 0o600)

    @property
    def is_wanted(self) -> bool:
        return self._plan.exists()

    def plan(self) -> StreamPlan:
        """Raises DamagedRecord; FileNotFoundError once it is not to be served any more."""
        return codec.decode(self._plan.read_bytes(), StreamPlan, self._plan, SCHEMA)

    def open(self) -> tuple[StreamPlan, ChunkFile]:
        plan = self.plan()
        index = read_index(self._index, plan.size, plan.root)
        if index is None:
            raise DamagedRecord(self._index, "it is not the list that the root is of")
        return plan, ChunkFile(self.part, index)

    def hold(self) -> AbstractContextManager[None]:
        """Held by its process. Raises Busy where there is one."""
        return self._locks.hold_now(_LOCK, str(self.path))

    @property
    def is_served(self) -> bool:
        return self._locks.is_held(_LOCK)

    def note(self, status: StreamStatus) -> None:
        """For people: a file system that is full keeps nobody from reading what is here."""
        with suppress(OSError):
            files.write_atomically(self._status, codec.encode(status), 0o600)

    def status(self) -> StreamStatus:
        nothing = StreamStatus(arrived=0, size=1)
        try:
            found = codec.decode(self._status.read_bytes(), StreamStatus, self._status, SCHEMA)
        except (OSError, UnreadableRecord):
            found = nothing
        return replace(found, served=self.is_served)

    def unwant(self) -> None:
        """Its process ends within a second."""
        files.remove(self._plan)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
