"""Locks by name that hold between threads and between processes, and end with their holder."""

import fcntl
import hashlib
import os
import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from millpond.errors import Busy, StateNotWritable
from millpond.system import files

# struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = "hhqqi4x"
_MOST = 200
"""Of a file's name, which may have 255 bytes."""


class Locks:
    """One file per lock, held as an open file description lock: every opening excludes the
    others, threads included; the kernel lets go when the process ends, however it ends; and
    unlike flock, one can ask without taking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Wait for the lock, and hold it for the block."""
        with self._holding(name, fcntl.F_OFD_SETLKW):
            yield

    @contextmanager
    def hold_now(self, name: str, what: str) -> Iterator[None]:
        """Hold the lock for the block, or raise Busy at once. ``what`` is for people."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._holding(name, fcntl.F_OFD_SETLK))
            except BlockingIOError as error:
                raise Busy(what) from error
            yield

    def is_held(self, name: str) -> bool:
        """Whether somebody holds it at this moment. For showing: to act, take it."""
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, name))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def abandoned(self) -> list[str]:
        """Names of locks whose holders were killed: nobody holds them, their files are there."""
        names = [unquote(path.name) for path in files.entries(self._directory)]
        return [name for name in names if not self.is_held(name)]

    def cleanup(self) -> None:
        """Remove the files of those; one that is taken now is removed by its holder."""
        for name in self.abandoned():
            with suppress(Busy), self.hold_now(name, name):
                pass

    @contextmanager
    def _holding(self, name: str, how: int) -> Iterator[None]:
        descriptor = self._acquire(name, how)
        try:
            yield
        finally:
            # Removed while it is still held: who waits for it finds that out in _is_current.
            self._path(name).unlink(missing_ok=True)
            os.close(descriptor)

    def _acquire(self, name: str, how: int) -> int:
        while True:
            descriptor = self._open(name)
            try:
                fcntl.fcntl(descriptor, how, _flock(fcntl.F_WRLCK, name))
                if self._is_current(name, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last holder removed the file while we waited

    def _open(self, name: str) -> int:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            return os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        except OSError as error:
            if error.errno in files.NO_SPACE and (found := self._open_link(name)) is not None:
                return found
            raise StateNotWritable(self._directory, error.strerror or str(error)) from error

    def _open_link(self, name: str) -> int | None:
        """On a file system that is full, where what frees space needs its lock, too: another name
        of a file that is there. Several locks may be on it, each on a byte of its own."""
        with suppress(OSError):
            for spare in files.entries(self._directory.parent):
                if spare.is_file():
                    with suppress(FileExistsError):
                        os.link(spare, self._path(name))
                    return os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        return None

    def _is_current(self, name: str, descriptor: int) -> bool:
        try:
            found = os.stat(self._path(name))
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(descriptor))

    def _path(self, name: str) -> Path:
        plain = quote(name, safe="")
        if len(plain) > _MOST:
            plain = hashlib.sha256(name.encode()).hexdigest()
        return self._directory / plain


class Slots:
    """At most ``count`` holders at a time, of all threads and processes."""

    def __init__(self, locks: Locks, name: str, count: int) -> None:
        self._locks = locks
        self._names = [f"{name}:{number}" for number in range(count)]

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Take a free slot, or wait for one by chance: the waiting spread over all of them."""
        with ExitStack() as stack:
            for name in self._names:
                with suppress(Busy):
                    stack.enter_context(self._locks.hold_now(name, name))
                    break
            else:
                stack.enter_context(self._locks.hold(random.choice(self._names)))
            yield


def _flock(kind: int, name: str) -> bytes:
    """One byte, at an offset that is the name's own."""
    digest = hashlib.sha256(name.encode()).digest()
    offset = int.from_bytes(digest[:8]) >> 2  # with the length it must fit into 63 bits
    return struct.pack(_FLOCK, kind, os.SEEK_SET, offset, 1, 0)
