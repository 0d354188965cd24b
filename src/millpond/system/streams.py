"""Bytes to and from a volume in one pass, by a stream of libvirt's; holes stay holes."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from millpond.model.callbacks import Progress, noop
from millpond.system import files, libvirtd

PIECE = 256 * 1024  # libvirt's RPC carries at most 4 MiB in a message
_AT_A_HOLE = -3  # what recvFlags answers there

Piece = bytes | int
"""Some bytes, or how many zeros stand in their place."""


def read(source: Path, progress: Progress = noop) -> Iterator[Piece]:
    """All of a file, with its holes."""
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        done = 0
        for start, end in files.extents(file.fileno(), size):
            yield from _hole(start - done, progress)
            for at in range(start, end, PIECE):
                content = os.pread(file.fileno(), min(PIECE, end - at), at)
                yield content
                progress(len(content))
            done = end
        yield from _hole(size - done, progress)


def send(stream: Any, pieces: Iterable[Piece], *, sparse: bool) -> None:
    """With zeros for holes unless the stream is sparse; it is finished then."""
    for piece in pieces if sparse else plain(pieces):
        if isinstance(piece, bytes):
            stream.send(piece)
        else:
            stream.sendHole(piece, 0)
    stream.finish()


def receive(stream: Any, *, sparse: bool) -> Iterator[Piece]:
    while content := stream.recvFlags(PIECE, libvirtd.STOP_AT_HOLE if sparse else 0):
        yield stream.recvHole() if content == _AT_A_HOLE else content
    stream.finish()


def write(pieces: Iterable[Piece], target: Path, progress: Progress) -> int:
    """Into a new file, which is synced; how long it became."""
    length = 0
    with files.explaining_lack_of_space(target.parent), open(target, "xb") as file:
        for piece in pieces:
            if isinstance(piece, bytes):
                files.write(file.fileno(), piece, length)
            count = piece if isinstance(piece, int) else len(piece)
            length += count
            progress(count)
        file.truncate(length)
        files.sync(file.fileno())
    return length


def plain(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """With zeros for the holes."""
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            continue
        for start in range(0, piece, PIECE):
            yield bytes(min(PIECE, piece - start))


def _hole(count: int, progress: Progress) -> Iterator[Piece]:
    if count:
        yield count
        progress(count)
