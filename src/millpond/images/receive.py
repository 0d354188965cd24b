"""Bytes to a file, in one pass: inspect, hash, index, write (B45). What is refused leaves none."""

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tenacity

from millpond.errors import CannotResume, FetchInterrupted, FileNotReadable, ImageRefused
from millpond.images.formats import ploop_directory
from millpond.images.formats.container import AGAIN
from millpond.images.formats.inspection import Inspection
from millpond.images.index import Index, Indexing
from millpond.images.packing import Packing, Unpacking
from millpond.images.source import Proof, Stream
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
    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What is said of an image before a byte of it is read."""

    format: ImageFormat
    name: str
    digest: Digest | None = None
    packing: Packing | None = None


def receive(
    stream: Stream,
    target: Path,
    declared: ImageFormat,
    name: str,
    progress: Progress = noop,
    *,
    packing: Packing | None = None,
) -> Received:
    """A stream to a new file, which keeps zeros as holes. Broken off, it is gone on with, or
    begun again. No such file is left by a failure."""
    most = _most_bytes(target)
    said = _Declared(format=declared, name=name, digest=stream.digest, packing=packing)
    with (
        _new_file(target) as descriptor,
        closing(_Receiver(descriptor, _write_sparse, said, most, stream.begin_proof)) as receiver,
    ):
        source = replace(stream, chunks=partial(receiver.limit, stream))
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
    *,
    digest: Digest | None = None,
    packing: Packing | None = None,
) -> Received:
    """The same from a file of this machine, whose bytes are not written again where the file
    system can share them. Then it is the copy that is read: who writes to the source meanwhile
    cannot change what was inspected."""
    most = _most_bytes(target)
    said = _Declared(format=declared, name=name, digest=digest, packing=packing)
    with opening(source) as reader, _new_file(target) as descriptor:
        can_be_cloned = not packing and _can_be_cloned(source, reader)
        is_clone = can_be_cloned and files.reflink(reader, descriptor)
        keep = _keep_as_it_is if is_clone else _write_sparse
        chunks = _chunks(descriptor, target) if is_clone else _chunks(reader, source)
        with closing(_Receiver(descriptor, keep, said, most)) as receiver:
            receiver.take(chunks, progress)
            return receiver.finish()


def examine(path: Path, declared: ImageFormat, name: str, progress: Progress = noop) -> Received:
    """A file that we made ourselves, inspected as strictly as anybody else's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    said = _Declared(format=declared, name=name)
    try:
        with closing(_Receiver(descriptor, _keep_as_it_is, said, _most_bytes(path))) as receiver:
            receiver.take(_chunks(descriptor, path), progress)
            return receiver.finish()
    finally:
        os.close(descriptor)


def _most_bytes(target: Path) -> int:
    """That something may have of which nobody states the length; zeros count, too."""
    return files.free_space(target.parent) * 9 // 10


class _Receiver:
    """Of one image's bytes, which may come in several goes, into a file."""

    def __init__(
        self,
        descriptor: int,
        keep: Keep,
        declared: _Declared,
        most: int,
        begin_proof: Callable[[], Proof] | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._keep = keep
        self._declared = declared
        self._most = most
        self._begin_proof = begin_proof
        self._begin()

    def _begin(self) -> None:
        said = self._declared
        self.received = 0  # as they come
        self.size = 0  # of the image, unpacked
        self._inspection = Inspection(said.format, said.name)
        self._unpacking = Unpacking(said.packing, said.name)
        self._hash = hashlib.new(_ALGORITHM)
        self._indexing = Indexing()
        self._published = self._begin_published()
        self._proof = self._begin_proof() if self._begin_proof else None

    def _begin_published(self) -> Any:
        """For the digest that was stated; None where it is the one that is taken anyway."""
        said = self._declared
        if said.digest is None or (said.digest.algorithm == _ALGORITHM and not said.packing):
            return None
        return hashlib.new(said.digest.algorithm)

    def take(self, chunks: Iterable[bytes], progress: Progress) -> None:
        for chunk in chunks:
            if self._published:
                self._published.update(chunk)
            if self._proof:
                self._proof.eat(chunk)
            for piece in self._unpacking.feed(chunk):
                self._take(piece)
            self.received += len(chunk)
            progress(len(chunk))

    def _take(self, piece: bytes) -> None:
        if self._declared.packing and self.size + len(piece) > self._most:
            reason = f"it unpacks to more than {format_size(self._most)}"
            advice = "free some space; if it is meant to be so large, unpack it and add that"
            raise ImageRefused(self._declared.name, reason, advice)
        self._indexing.eat(piece)  # goes on while the others look at the same piece
        self._inspection.eat(piece)
        self._hash.update(piece)
        self._keep(self._descriptor, piece, self.size)
        self.size += len(piece)

    def close(self) -> None:
        self._unpacking.close()
        self._indexing.close()

    def limit(self, stream: Stream, offset: int) -> Iterator[bytes]:
        """What nobody states the length of must not fill the file system. Of a raw disk even a
        part looks whole."""
        said = self._declared
        looks_whole = said.format.content is DiskFormat.RAW and not said.packing
        for chunk in stream.chunks(offset):
            if looks_whole and not said.digest and not stream.has_end():
                reason = "its server does not say where it ends, and a part of it would look whole"
                raise ImageRefused(said.name, reason, "state its digest: --digest sha256:HEX")
            offset += len(chunk)
            if offset > self._most and stream.length() is None:
                arrived = f"more than {format_size(self._most)} arrived"
                reason = f"{arrived}, and its server states no length"
                raise ImageRefused(said.name, reason, "save it to a file, and add that")
            yield chunk

    def start_over(self, progress: Progress) -> None:
        progress(-self.received)
        os.ftruncate(self._descriptor, 0)
        self.close()
        self._begin()

    def finish(self) -> Received:
        self._compare()
        for piece in self._unpacking.finish():
            self._take(piece)
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
            digest=self._hash.hexdigest(),
            index=self._indexing.finish(),
        )

    def _compare(self) -> None:
        """Of the bytes as they were published: packed, if they were."""
        said = self._declared
        if said.digest and (self._published or self._hash).hexdigest() != said.digest.value:
            reason = f"its {said.digest.algorithm} is not the one that was stated"
            raise ImageRefused(said.name, reason, AGAIN)


def _go_on(receiver: _Receiver, stream: Stream, progress: Progress) -> None:
    try:
        receiver.take(stream.chunks(receiver.received), progress)
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
        while chunk := files.read(descriptor, CHUNK):
            yield chunk
    except OSError as error:
        raise FileNotReadable(path, error.strerror or str(error)) from error
