"""Bytes to a file, in one pass: inspect, hash, write (B45). What is refused leaves no file."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import FileNotReadable
from millpond.images import ploop_directory
from millpond.images.inspection import Inspection
from millpond.model.formats import ImageFormat
from millpond.system import files
from millpond.system.files import CHUNK, Progress, silent
from millpond.undo import undo_on_failure

STANDARD_INPUT = Path("-")

_BLOCK = 64 * 1024
"""Holes are left in steps of this size, a multiple of what file systems allocate."""
_ZEROS = bytes(_BLOCK)

Keep = Callable[[int, bytes, int], None]
"""Takes the file that is being filled, a chunk, and the chunk's place in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    size: int
    virtual_size: int
    digest: str
    """SHA-512, in hexadecimal."""


def receive(
    chunks: Iterable[bytes],
    target: Path,
    declared: ImageFormat,
    name: str,
    progress: Progress = silent,
) -> Received:
    """A stream to a new file, which keeps zeros as holes. No such file is left by a failure."""
    inspection = Inspection(declared, name)
    with _new_file(target) as descriptor:
        return _pass_through(chunks, descriptor, inspection, _write_sparse, progress)


def receive_file(
    source: Path,
    target: Path,
    declared: ImageFormat,
    name: str,
    progress: Progress = silent,
) -> Received:
    """The same from a file of this machine, whose bytes are not written again where the file
    system can share them. Then it is the copy that is read: who writes to the source meanwhile
    cannot change what was inspected."""
    inspection = Inspection(declared, name)
    with opened(source) as reader, _new_file(target) as descriptor:
        if _can_be_cloned(source, reader) and files.reflink(reader, descriptor):
            own = _chunks(descriptor, target)
            return _pass_through(own, descriptor, inspection, _keep_as_it_is, progress)
        foreign = _chunks(reader, source)
        return _pass_through(foreign, descriptor, inspection, _write_sparse, progress)


def examine(path: Path, declared: ImageFormat, name: str, progress: Progress = silent) -> Received:
    """A file that we made ourselves, inspected as strictly as anybody else's."""
    inspection = Inspection(declared, name)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        own = _chunks(descriptor, path)
        return _pass_through(own, descriptor, inspection, _keep_as_it_is, progress)
    finally:
        os.close(descriptor)


def _pass_through(
    chunks: Iterable[bytes],
    descriptor: int,
    inspection: Inspection,
    keep: Keep,
    progress: Progress,
) -> Received:
    digest = hashlib.sha512()
    size = 0
    for chunk in chunks:
        inspection.eat(chunk)
        digest.update(chunk)
        keep(descriptor, chunk, size)
        size += len(chunk)
        progress(len(chunk))
    finding = inspection.finish(size)
    os.ftruncate(descriptor, size)  # the last bytes may be a hole
    inspection.look_through(descriptor)
    files.sync(descriptor)
    return Received(size=size, virtual_size=finding.virtual_size, digest=digest.hexdigest())


def _keep_as_it_is(_descriptor: int, _chunk: bytes, _offset: int) -> None:
    """The file has these bytes already."""


def _write_sparse(descriptor: int, chunk: bytes, offset: int) -> None:
    """Blocks of zeros are passed over, whole runs of others written at once."""
    for start, end in _data(chunk, offset):
        while start < end:
            start += os.pwrite(descriptor, chunk[start:end], offset + start)


def _data(chunk: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """The parts of a chunk that are not zeros, cut where the file has its blocks."""
    start = end = 0
    while end < len(chunk):
        edge = min(len(chunk), end + _BLOCK - (offset + end) % _BLOCK)
        if chunk[end:edge] == _ZEROS[: edge - end]:
            if start < end:
                yield start, end
            start = edge
        end = edge
    if start < end:
        yield start, end


@contextmanager
def _new_file(target: Path) -> Iterator[int]:
    with files.explaining_lack_of_space(target.parent), undo_on_failure() as undo:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        undo.callback(files.remove, target)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def opened(source: Path) -> Iterator[int]:
    """A file of this machine to read an image from."""
    if source == STANDARD_INPUT:
        yield 0
        return
    descriptor = _opened_directory(source) if os.path.isdir(source) else _opened_file(source)
    try:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            raise FileNotReadable(source, "it is neither a file nor a disk")
        yield descriptor
    finally:
        os.close(descriptor)


def _opened_file(source: Path) -> int:
    try:
        return os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileNotReadable(source, error.strerror or str(error)) from error


def _opened_directory(source: Path) -> int:
    return ploop_directory.open_plainly(ploop_directory.image_file(source))


def _can_be_cloned(source: Path, descriptor: int) -> bool:
    """Not standard input, of which somebody else may have read a part."""
    return source != STANDARD_INPUT and stat.S_ISREG(os.fstat(descriptor).st_mode)


def _chunks(descriptor: int, path: Path) -> Iterator[bytes]:
    try:
        while chunk := os.read(descriptor, CHUNK):
            yield chunk
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error
