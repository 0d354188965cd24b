"""The streams of a cache: begun, served again, and ended."""

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

from millpond.errors import DamagedRecord, StateNotWritable, StreamNotServed
from millpond.images.index import Index
from millpond.model.layer import NbdSource
from millpond.model.sizes import format_size
from millpond.model.stream import StreamAccess, StreamStatus
from millpond.system import files, process
from millpond.system.waiting import wait_until
from millpond.templates.sidecar import make_directory
from millpond.templates.store import TemplateStore
from millpond.templates.streams.plan import StreamDirectory, StreamPlan

_STARTS = 60.0
"""Seconds that a process has to answer: on a host that is busy, Python alone takes some."""
_ENDS = 30.0


class Streams:
    def __init__(self, store: TemplateStore, access: StreamAccess) -> None:
        self._store = store
        self._access = access

    def directory(self, name: str) -> StreamDirectory:
        return StreamDirectory(self._store.stream(name))

    def names(self) -> list[str]:
        return self._store.streams()

    def source(self, name: str) -> NbdSource:
        """The same path on all hosts whose caches are at the same place."""
        whole = hashlib.sha256(f"{self._store.cache}/{name}".encode()).hexdigest()
        return NbdSource(socket=self._access.sockets / whole[:16])  # a path may have 107 bytes

    def begin(self, plan: StreamPlan, index: Index) -> int:
        """Write down all that its process needs. How many bytes it will take."""
        directory = self.directory(plan.name)
        make_directory(directory.path)
        with files.explaining_lack_of_space(directory.path, str(self._store.cache)):
            directory.write(plan, index)
            _, file = directory.open()
            file.close()
        return file.space

    def reserve(self, name: str, needed: int) -> None:
        """All the space that it will take, on disk: a guest need not wait for that later."""
        directory = self.directory(name)
        pool = f"pool {self._store.pool.name} ({self._store.cache})"
        with files.explaining_lack_of_space(self._store.cache, pool, format_size(needed)):
            _, file = directory.open()
            file.reserve()
            file.close()

    def serve(self, name: str) -> None:
        """See to it that somebody answers. Raises StreamNotServed."""
        directory = self.directory(name)
        try:
            plan = directory.plan()
        except (FileNotFoundError, DamagedRecord) as error:
            raise StreamNotServed(name, f"its plan is lost ({error})") from error
        if directory.is_served and _answers(plan.socket):
            return
        self._make_place(plan.socket.parent)
        if not directory.is_served:
            files.remove(directory.log)
            process.start([*self._access.serve, str(directory.path)], directory.log)
        if not wait_until(lambda: _answers(plan.socket) or _has_failed(directory), _STARTS):
            raise StreamNotServed(name, f"its process does not answer within {_STARTS:g} s")
        if not _answers(plan.socket):
            raise StreamNotServed(name, _last_words(directory))

    def end(self, name: str) -> None:
        """Nobody uses it: whoever calls has asked. One that is gone already is no error."""
        directory = self.directory(name)
        directory.unwant()
        if not wait_until(lambda: not directory.is_served, _ENDS):
            raise StreamNotServed(name, "its process does not end")
        self.source(name).socket.unlink(missing_ok=True)
        directory.remove()

    def status(self, name: str) -> StreamStatus:
        return self.directory(name).status()

    def _make_place(self, sockets: Path) -> None:
        """QEMU's user may search it, and nobody else can list what is there."""
        try:
            sockets.mkdir(parents=True, exist_ok=True)
            if sockets.stat().st_uid == os.geteuid():
                sockets.chmod(0o711)
        except OSError as error:
            raise StateNotWritable(sockets, error.strerror or str(error)) from error


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(5)
        client.connect(str(path))
        return client.recv(8) == b"NBDMAGIC"
    return False


def _has_failed(directory: StreamDirectory) -> bool:
    """It has said something, and is gone."""
    return bool(_last_words(directory)) and not directory.is_served


def _last_words(directory: StreamDirectory) -> str:
    with suppress(OSError):
        lines = directory.log.read_text(errors="replace").strip().splitlines()
        return lines[-1].split(maxsplit=2)[-1] if lines else ""
    return ""
