"""Reads from the socket of a stream, as QEMU will: what is inspected is what QEMU gets."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.images.formats.container import Read
from millpond.templates.streams.nbd import receive

_SECONDS = 60
"""That a read may take: longer than the process itself waits for its source."""
_FLAGS = 1 | 2  # fixed newstyle, no zeroes
_EXPORT_NAME = 1


@contextmanager
def reading(path: Path) -> Iterator[Read]:
    """Raises OSError for what cannot be read."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(str(path))
        receive(connection, 18)
        name = struct.pack(">QII", 0x49484156454F5054, _EXPORT_NAME, 0)
        connection.sendall(struct.pack(">I", _FLAGS) + name)
        size, _ = struct.unpack(">QH", receive(connection, 10))

        def read(offset: int, length: int) -> bytes:
            length = max(0, min(length, size - offset))  # as a file is read
            if not length:
                return b""
            request = struct.pack(">IHHQQI", 0x25609513, 0, 0, 0, offset, length)
            connection.sendall(request)
            _, code, _ = struct.unpack(">IIQ", receive(connection, 16))
            if code:
                raise OSError(code, "it could not be had")
            return receive(connection, length)

        yield read
