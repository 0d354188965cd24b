"""What an image must be, chunk by chunk: so that a part of it can be verified alone.

The root is the SHA-256 of the list of the chunks' SHA-256. Whoever knows the root and the size can
verify a list from anywhere, and by the list each chunk, without having seen the others.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from millpond.model.sizes import KiB, MiB

INDEX_CHUNK = 256 * KiB
"""decision 35"""

_AT_ONCE = 1 * MiB
"""Handed to another thread: less would cost more than it saves."""

_DIGEST = hashlib.sha256().digest_size
_ZEROS = bytes(INDEX_CHUNK)
_OF_ZEROS = hashlib.sha256(_ZEROS).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    size: int
    """Of the image. The last chunk is as long as what is left of it."""
    digests: bytes
    """One after the other; none of an empty image."""

    @property
    def root(self) -> str:
        return hashlib.sha256(self.digests).hexdigest()


class Indexing:
    """Of bytes while they pass. SHA-256 has a thread of its own: beside the SHA-512 of the whole,
    on another core, it takes no time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "index")
        self._busy: Future[None] | None = None
        self._digests = bytearray()
        self._waiting: list[bytes] = []
        self._length = 0
        self._size = 0

    def eat(self, piece: bytes) -> None:
        """In order, and of any length."""
        self._waiting.append(piece)
        self._length += len(piece)
        self._size += len(piece)
        if self._length >= _AT_ONCE:
            self._hand_over()

    def finish(self) -> Index:
        if self._waiting:
            self._hand_over(is_last=True)
        self._wait()
        return Index(size=self._size, digests=bytes(self._digests))

    def close(self) -> None:
        self._thread.shutdown()

    def _hand_over(self, *, is_last: bool = False) -> None:
        """To the thread, once it is done with what came before: no more than two are in memory."""
        content = b"".join(self._waiting)
        whole = len(content) if is_last else len(content) // INDEX_CHUNK * INDEX_CHUNK
        self._waiting = [content[whole:]] if whole < len(content) else []
        self._length = len(content) - whole
        self._wait()
        self._busy = self._thread.submit(self._hash, content, whole)

    def _wait(self) -> None:
        if self._busy:
            self._busy.result()

    def _hash(self, content: bytes, end: int) -> None:
        for start in range(0, end, INDEX_CHUNK):
            self._digests += _digest(content[start : min(end, start + INDEX_CHUNK)])


def make_index(pieces: Iterable[bytes]) -> Index:
    """Of bytes that are read for nothing else."""
    indexing = Indexing()
    try:
        for piece in pieces:
            indexing.eat(piece)
        return indexing.finish()
    finally:
        indexing.close()


def read_index(path: Path, size: int, root: str) -> Index | None:
    """None if it is not there, or is not the one that the root was made of."""
    try:
        index = Index(size=size, digests=path.read_bytes())
    except FileNotFoundError:
        return None
    return index if len(index.digests) == index_length(size) and index.root == root else None


def index_length(size: int) -> int:
    """Of the list of an image of this size."""
    return -(-size // INDEX_CHUNK) * _DIGEST


def _digest(chunk: bytes) -> bytes:
    """Zeros are compared, which is faster than to hash them: images have many."""
    return _OF_ZEROS if chunk == _ZEROS else hashlib.sha256(chunk).digest()
