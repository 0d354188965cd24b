"""The file of a template whose bytes arrive chunk by chunk, and the map of those that are there.

A chunk is written, the file synced, and then the map replaced: what the map marks was verified and
is on disk, whenever the process or the power goes. The map names the root of the index, so that
one of other bytes marks nothing.
"""

import hashlib
import os
import threading
from pathlib import Path

from millpond.images.index import INDEX_CHUNK, Index
from millpond.system import files

_DIGEST = hashlib.sha256().digest_size
_ZEROS = hashlib.sha256(bytes(INDEX_CHUNK)).digest()


_PARTS = 20
"""The map is written at least so many times while a file arrives: what is lost with a process is
fetched again."""


class ChunkFile:
    def __init__(self, path: Path, index: Index) -> None:
        self._index = index
        self._map = path.with_name(f"{path.name}.map")
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._root = bytes.fromhex(index.root)
        self.count = len(index.digests) // _DIGEST
        self._zeros = bytearray(map(self._is_zeros, range(self.count)))
        self.is_begun = self._map.exists()
        """By a process before this one."""
        self._there = self._read_map()
        self._descriptor = _open(path)
        if os.fstat(self._descriptor).st_size != index.size:
            os.ftruncate(self._descriptor, index.size)
        self._written = -1
        """How many chunks the map on disk marks."""

    @property
    def is_whole(self) -> bool:
        return 0 not in self._there

    @property
    def arrived(self) -> int:
        """Bytes that are there, or are zeros."""
        return self._index.size - sum(map(self.length, self.missing()))

    @property
    def space(self) -> int:
        """Bytes that it takes when it is whole."""
        return sum(self.length(each) for each in range(self.count) if not self._zeros[each])

    def reserve(self) -> None:
        """All the space that it will take: later, guests would wait for it. Raises OSError."""
        for number in self.missing():
            os.posix_fallocate(self._descriptor, number * INDEX_CHUNK, self.length(number))

    def length(self, number: int) -> int:
        return min(INDEX_CHUNK, self._index.size - number * INDEX_CHUNK)

    def has(self, number: int) -> bool:
        return self._there[number] == 1

    def missing(self) -> list[int]:
        return [number for number in range(self.count) if not self._there[number]]

    def is_right(self, number: int, content: bytes) -> bool:
        digest = self._index.digests[number * _DIGEST : (number + 1) * _DIGEST]
        return len(content) == self.length(number) and hashlib.sha256(content).digest() == digest

    def put(self, number: int, content: bytes) -> bool:
        """Only what is right: whoever reads the file reads what the index says. Whether it is."""
        if not self.is_right(number, content):
            return False
        files.write(self._descriptor, content, number * INDEX_CHUNK)
        with self._lock:
            self._there[number] = 1
        return True

    def forget_wrong(self) -> int:
        """Chunks that are not on disk what they were when they came: how many there were. Nobody
        writes meanwhile."""
        wrong = [
            number
            for number in range(self.count)
            if self.has(number)
            and not self.is_right(number, self.read(number * INDEX_CHUNK, self.length(number)))
        ]
        with self._lock:
            for number in wrong:
                self._there[number] = 0
        return len(wrong)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    @property
    def is_sync_due(self) -> bool:
        return self._there.count(1) - self._written > self.count // _PARTS

    def sync(self) -> None:
        """What was put is there for whoever comes next. Raises OSError."""
        with self._syncing:
            with self._lock:
                there = bytes(self._there)
            if there.count(1) != self._written:
                os.fdatasync(self._descriptor)
                files.write_atomically(self._map, self._root + there)
                self._written = there.count(1)

    def close(self) -> None:
        self.sync()
        os.close(self._descriptor)

    def _read_map(self) -> bytearray:
        """And chunks of zeros: the file has holes there, which nobody need fetch."""
        there = bytearray(self._zeros)
        try:
            content = self._map.read_bytes()
        except FileNotFoundError:
            return there
        marked = content[_DIGEST:]
        if content[:_DIGEST] != self._root or len(marked) != self.count or set(marked) - {0, 1}:
            return there
        return bytearray(one | other for one, other in zip(there, marked, strict=True))

    def _is_zeros(self, number: int) -> bool:
        digest = self._index.digests[number * _DIGEST : (number + 1) * _DIGEST]
        length = self.length(number)
        return digest == (
            _ZEROS if length == INDEX_CHUNK else hashlib.sha256(bytes(length)).digest()
        )


def _open(path: Path) -> int:
    """One that is whole may be read-only: it is the template's own file by then."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
