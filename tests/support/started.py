"""How many programs hosts start: the kernel tells of each (the process events connector), however
short it lives and whoever starts it."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.libvirtd import PrivateLibvirtd

# linux/netlink.h, linux/connector.h, linux/cn_proc.h
_NETLINK_CONNECTOR = 11
_SO_RCVBUFFORCE = 33
_LISTEN = struct.pack("=IHHIIIIIIHHI", 40, 3, 0, 0, 0, 1, 1, 0, 0, 4, 0, 1)
_HEADERS = 16 + 20
_EVENT = struct.Struct("=IIQIIII")
_FORK, _EXEC = 1, 2

_BUFFER = 1 << 26
_SECONDS = 0.2


class Counter:
    """Of what the hosts' processes start, and those that they have started."""

    def __init__(self, *hosts: PrivateLibvirtd) -> None:
        self.count = 0
        self._known = set().union(*map(_processes, hosts))
        self._ended = threading.Event()
        self._failure: OSError | None = None
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self._socket.bind((0, 1))
        self._socket.settimeout(_SECONDS)
        self._socket.send(_LISTEN)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()
        if self._failure:
            raise RuntimeError("the kernel had more to tell than fitted") from self._failure

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                message = self._socket.recv(4096)
            except TimeoutError:
                continue
            except OSError as error:  # ENOBUFS: something is not counted
                self._failure = error
                return
            what, _, _, _, process, _, child = _EVENT.unpack_from(message, _HEADERS)
            if what == _FORK and process in self._known:
                self._known.add(child)
            elif what == _EXEC and process in self._known:
                self.count += 1


@contextmanager
def counting(*hosts: PrivateLibvirtd) -> Iterator[Counter]:
    counter = Counter(*hosts)
    try:
        yield counter
    finally:
        counter.end()


def _processes(libvirtd: PrivateLibvirtd) -> set[int]:
    """Those that see the files of the host, nova-compute among them."""
    own = _mounts(libvirtd.pid)
    return {int(each.name) for each in Path("/proc").glob("[0-9]*") if _mounts(each.name) == own}


def _mounts(process: int | str) -> str:
    try:
        return os.readlink(f"/proc/{process}/ns/mnt")
    except OSError:  # it has ended meanwhile
        return ""
