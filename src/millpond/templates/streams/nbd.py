"""An NBD server of one export that is only read, on a unix socket.

Fixed newstyle negotiation and simple replies, as doc/proto.md of the NBD project has them: what
QEMU needs to read, and nothing more. Anything else is refused.
"""

import errno
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from millpond.system import acl

LOG = logging.getLogger(__name__)

Read = Callable[[int, int], bytes]
"""So many bytes from an offset; OSError where they cannot be had."""

_MAGIC = 0x4E42444D41474943
_HAVE_OPTION = 0x49484156454F5054
_OPTION_REPLY = 0x3E889045565A9
_REQUEST = 0x25609513
_REPLY = 0x67446698
_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_FLAGS = 1 | 2 | 256  # has flags, read-only, several connections see the same
_EXPORT_NAME, _ABORT, _LIST, _INFO, _GO = 1, 2, 3, 6, 7
_THE_ONE = bytes(4)
"""The length of the name of our only export, which has none."""
_ACK, _SERVER, _INFO_REPLY = 1, 2, 3
_UNSUPPORTED, _UNKNOWN = 2**31 + 1, 2**31 + 6
_READ, _WRITE, _DISCONNECT = 0, 1, 2
_MOST = 32 * 1024 * 1024
"""Bytes of one request: what the protocol lets a server refuse."""
_LONGEST_OPTION = 64 * 1024
_AT_ONCE = 16
"""Requests of a connection: one that waits for its chunk must not hold up the others."""


class NbdServer:
    def __init__(self, path: Path, size: int, read: Read, reader: int = 0) -> None:
        """``reader``: the user who may open the socket besides us and root."""
        self._size = size
        self._read = read
        self._lock = threading.Lock()
        self.connected = 0
        """Who reads at this moment."""
        self._socket = _listen(path, reader)

    def serve(self) -> None:
        """Until the socket is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _talk(self, connection: socket.socket) -> None:
        self._count(1)
        try:
            with connection:
                if _negotiate(connection, self._size):
                    _Transmission(connection, self._size, self._read).run()
        except (OSError, EOFError) as error:
            LOG.debug("a connection ended: %s", error)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self.connected += more


def _listen(path: Path, reader: int) -> socket.socket:
    """Under a name of its own first: whoever finds the socket finds somebody who answers, and
    nobody finds it before it is closed to others."""
    made = path.with_name(f".{path.name}")
    made.unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        found.bind(str(made))
    finally:
        os.umask(before)
    if os.geteuid() == 0:
        os.chown(made, reader, -1)
    elif reader not in (0, os.geteuid()):
        acl.let_write(made, reader)
    found.listen(64)
    made.rename(path)
    return found


def _negotiate(connection: socket.socket, size: int) -> bool:
    """Whether the client goes on to read."""
    offered = _FIXED_NEWSTYLE | _NO_ZEROES
    connection.sendall(struct.pack(">QQH", _MAGIC, _HAVE_OPTION, offered))
    (flags,) = struct.unpack(">I", receive(connection, 4))
    if not flags & _FIXED_NEWSTYLE:
        return False
    goes_on: bool | None = None
    while goes_on is None:
        magic, option, length = struct.unpack(">QII", receive(connection, 16))
        if magic != _HAVE_OPTION or length > _LONGEST_OPTION:
            return False
        data = receive(connection, length)
        if option == _EXPORT_NAME:  # the old way in, without an answer to refuse by
            padding = b"" if flags & _NO_ZEROES else bytes(124)
            connection.sendall(struct.pack(">QH", size, _FLAGS) + padding)
            return not data
        goes_on = _answer_option(connection, option, data, size)
    return goes_on


def _answer_option(connection: socket.socket, option: int, data: bytes, size: int) -> bool | None:
    """Whether the client goes on to read; None while it goes on to ask."""
    if option not in (_ABORT, _LIST, _INFO, _GO):
        _answer(connection, option, _UNSUPPORTED)
        return None
    if option in (_INFO, _GO):
        if data[:4] != _THE_ONE:
            _answer(connection, option, _UNKNOWN)
            return None
        _answer(connection, option, _INFO_REPLY, struct.pack(">HQH", 0, size, _FLAGS))
    if option == _LIST:
        _answer(connection, option, _SERVER, _THE_ONE)
    _answer(connection, option, _ACK)
    return {_ABORT: False, _GO: True}.get(option)


def _answer(connection: socket.socket, option: int, kind: int, data: bytes = b"") -> None:
    connection.sendall(struct.pack(">QIII", _OPTION_REPLY, option, kind, len(data)) + data)


class _Transmission:
    def __init__(self, connection: socket.socket, size: int, read: Read) -> None:
        self._connection = connection
        self._size = size
        self._read = read
        self._sending = threading.Lock()
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "nbd") as pool:
            while True:
                words = struct.unpack(">IHHQQI", receive(self._connection, 28))
                magic, _, command, handle, offset, length = words
                if magic != _REQUEST or command == _DISCONNECT or length > _MOST:
                    return
                if command == _WRITE:
                    receive(self._connection, length)
                if command != _READ:
                    code = errno.EPERM if command == _WRITE else errno.EINVAL
                    self._reply(handle, code)
                    continue
                self._free.acquire()
                pool.submit(self._serve, handle, offset, length)

    def _serve(self, handle: int, offset: int, length: int) -> None:
        try:
            if offset + length > self._size:
                self._reply(handle, errno.EINVAL)
                return
            try:
                content = self._read(offset, length)
            except OSError as error:
                LOG.warning("%s bytes from %s on cannot be had: %s", length, offset, error)
                self._reply(handle, errno.EIO)
                return
            self._reply(handle, 0, content)
        except OSError as error:  # of the connection, which run() notices, too
            LOG.debug("nobody waits for an answer: %s", error)
        finally:
            self._free.release()

    def _reply(self, handle: int, code: int, content: bytes = b"") -> None:
        with self._sending:
            self._connection.sendall(struct.pack(">IIQ", _REPLY, code, handle) + content)


def receive(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise EOFError("it was closed")
        found += piece
    return bytes(found)
