"""Bytes to a file, in one pass: inspect, hash, write (B45). What is refused leaves no file."""

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import tenacity

from millpond.errors import CannotResume, FetchInterrupted, FileNotReadable, ImageRefused
from millpond.images.formats import ploop_directory
from millpond.images.formats.container import AGAIN
from millpond.images.formats.inspection import Inspection
from millpond.images.source import Stream
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.sizes import format_size
from millpond.model.transfer import Digest
from millpond.records.journal import undo_on_failure
from millpond.system import files
from millpond.system.files import CHUNK

LOG = logging.getLogger(__name__)

STANDARD_INPUT = Path("-")

_BLOCK = 64 * 1024
"""Holes are left in steps of this size, a multiple of what file systems allocate."""
_ZEROS = bytes(_BLOCK)

_ALGORITHM = "sha512"
"""Of the catalogue, and of Glance unless it is told otherwise."""

Keep = Callable[[int, bytes, int], None]
"""Takes the file that is being filled, a chunk, and the chunk's place in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    size: int
    virtual_size: int
    digest: str
    """SHA-512, in hexadecimal."""


def receive(
    stream: Stream,
    target: Path,
    declared: ImageFormat,
    name: str,
    progress: Progress = noop,
) -> Received:
    """A stream to a new file, which keeps zeros as holes. Broken off, it is gone on with, or
    begun again. No such file is left by a failure."""
    most = files.free_space(target.parent) * 9 // 10
    with _new_file(target) as descriptor:
        receiver = _Receiver(descriptor, _write_sparse, declared, name, stream)
        source = replace(stream, chunks=partial(receiver.limit, stream, most))
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(FetchInterrupted),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
            stop=tenacity.stop_after_attempt(1 + stream.retries),
            before_sleep=_say_why,
            reraise=True,
        ):
            with attempt:
                _go_on(receiver, source, progress)
        return receiver.finish()


def receive_file(
    source: Path,
    target: Path,
    declared: ImageFormat,
    name: str,
    progress: Progress = noop,
    digest: Digest | None = None,
) -> Received:
    """The same from a file of this machine, whose bytes are not written again where the file
    system can share them. Then it is the copy that is read: who writes to the source meanwhile
    cannot change what was inspected."""
    with opening(source) as reader, _new_file(target) as descriptor:
        if _can_be_cloned(source, reader) and files.reflink(reader, descriptor):
            receiver = _Receiver(descriptor, _keep_as_it_is, declared, name, digest=digest)
            receiver.take(_chunks(descriptor, target), progress)
        else:
            receiver = _Receiver(descriptor, _write_sparse, declared, name, digest=digest)
            receiver.take(_chunks(reader, source), progress)
        return receiver.finish()


def examine(path: Path, declared: ImageFormat, name: str, progress: Progress = noop) -> Received:
    """A file that we made ourselves, inspected as strictly as anybody else's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        receiver = _Receiver(descriptor, _keep_as_it_is, declared, name)
        receiver.take(_chunks(descriptor, path), progress)
        return receiver.finish()
    finally:
        os.close(descriptor)


class _Receiver:
    """Of one image's bytes, which may come in several goes, into a file."""

    def __init__(
        self,
        descriptor: int,
        keep: Keep,
        declared: ImageFormat,
        name: str,
        stream: Stream | None = None,
        digest: Digest | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._keep = keep
        self._declared = declared
        self._name = name
        self._expected = stream.digest if stream else digest
        self._begin_proof = stream.begin_proof if stream else None
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        self._inspection = Inspection(self._declared, self._name)
        wanted = {_ALGORITHM, self._expected.algorithm} if self._expected else {_ALGORITHM}
        self._hashes = {name: hashlib.new(name) for name in wanted}
        self._proof = self._begin_proof() if self._begin_proof else None

    def take(self, chunks: Iterable[bytes], progress: Progress) -> None:
        for chunk in chunks:
            self._inspection.eat(chunk)
            for each in self._hashes.values():
                each.update(chunk)
            if self._proof:
                self._proof.eat(chunk)
            self._keep(self._descriptor, chunk, self.size)
            self.size += len(chunk)
            progress(len(chunk))

    def limit(self, stream: Stream, most: int, offset: int) -> Iterator[bytes]:
        """What nobody states the length of must not fill the file system; zeros count, too. Of a
        raw disk even a part looks whole."""
        looks_whole = self._declared.content is DiskFormat.RAW and not self._expected
        for chunk in stream.chunks(offset):
            if looks_whole and not stream.has_end():
                reason = "its server does not say where it ends, and a part of it would look whole"
                raise ImageRefused(self._name, reason, "state its digest: --digest sha256:HEX")
            offset += len(chunk)
            if offset > most and stream.length() is None:
                reason = f"more than {format_size(most)} arrived, and its server states no length"
                raise ImageRefused(self._name, reason, "save it to a file, and add that")
            yield chunk

    def start_over(self, progress: Progress) -> None:
        progress(-self.size)
        os.ftruncate(self._descriptor, 0)
        self._begin()

    def finish(self) -> Received:
        self._compare()
        if self._proof:
            self._proof.finish()
        finding = self._inspection.finish(self.size)
        os.ftruncate(self._descriptor, self.size)  # the last bytes may be a hole
        self._inspection.look_through(
            lambda offset, length: os.pread(self._descriptor, length, offset)
        )
        files.sync(self._descriptor)
        return Received(
            size=self.size,
            virtual_size=finding.virtual_size,
            digest=self._hashes[_ALGORITHM].hexdigest(),
        )

    def _compare(self) -> None:
        expected = self._expected
        if expected and self._hashes[expected.algorithm].hexdigest() != expected.value:
            reason = f"its {expected.algorithm} is not the one that was stated"
            raise ImageRefused(self._name, reason, AGAIN)


def _go_on(receiver: _Receiver, stream: Stream, progress: Progress) -> None:
    try:
        receiver.take(stream.chunks(receiver.size), progress)
    except CannotResume as error:
        LOG.debug("starting over: %s", error)
        receiver.start_over(progress)
        receiver.take(stream.chunks(0), progress)


def _say_why(state: tenacity.RetryCallState) -> None:
    LOG.debug("trying again: %s", state.outcome and state.outcome.exception())


def _keep_as_it_is(_descriptor: int, _chunk: bytes, _offset: int) -> None:
    """The file has these bytes already."""


def _write_sparse(descriptor: int, chunk: bytes, offset: int) -> None:
    """Blocks of zeros are passed over, whole runs of others written at once."""
    for start, end in _data(chunk, offset):
        files.write(descriptor, chunk[start:end], offset + start)


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
def opening(source: Path) -> Iterator[int]:
    """A file of this machine to read an image from."""
    if source == STANDARD_INPUT:
        yield 0
        return
    descriptor = _open_directory(source) if os.path.isdir(source) else _open_file(source)
    try:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            raise FileNotReadable(source, "it is neither a file nor a disk")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_file(source: Path) -> int:
    try:
        return os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileNotReadable(source, error.strerror or str(error)) from error


def _open_directory(source: Path) -> int:
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
