"""A tool that was taken over: tries what it must not be able to do, and prints what it did.

Run as a script: HANDED READ_ONLY OTHER ELSEWHERE PORT PID SETUID, see tests/unit/test_confine.py.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable

_CAPABILITY_VERSION = 0x20080522  # linux/capability.h
_CLONE_NEWUSER = 1 << 28
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(handed: str, read_only: str, other: str, elsewhere: str, *rest: str) -> None:
    port, pid, setuid = rest
    attempts: dict[str, Callable[[], object]] = {
        "read /etc/shadow": lambda: _read("/etc/shadow"),
        "read /etc/passwd": lambda: _read("/etc/passwd"),
        "read another disk": lambda: _read(other),
        "write another disk": lambda: _write(other),
        "write what it may read": lambda: _write(read_only),
        "make a file": lambda: os.close(os.open(elsewhere, os.O_CREAT | os.O_WRONLY)),
        "connect": lambda: socket.create_connection(("127.0.0.1", int(port)), 5).close(),
        "fork": _fork,
        "signal another process": lambda: os.kill(int(pid), signal.SIGCONT),
        "trace another process": lambda: _call("ptrace", 0x4206, int(pid), 0, 0),  # SEIZE
        "become root": lambda: os.setresuid(0, 0, 0),
        "make a user namespace": lambda: _call("unshare", _CLONE_NEWUSER),
        "have a capability": _have_a_capability,
    }
    done = [name for name, attempt in attempts.items() if _succeeds(attempt)]
    works = {
        "read": _succeeds(lambda: _read(read_only)),
        "write": _succeeds(lambda: _write(handed)),
        "thread": _succeeds(_start_a_thread),
    }
    print(json.dumps({"done": done, "works": works, "ids": [*os.getresuid(), *os.getgroups()]}))
    sys.stdout.flush()
    os.execv(setuid, [setuid, "-u"])


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, RuntimeError) as error:
        print(f"{error!r}", file=sys.stderr)
        return False
    return True


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


def _write(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(b"w")


def _fork() -> None:
    if pid := os.fork():
        os.waitpid(pid, 0)
    else:
        os._exit(0)


def _call(name: str, *words: int) -> None:
    if getattr(_LIBC, name)(*words) == -1:
        raise OSError(ctypes.get_errno(), name)


def _have_a_capability() -> None:
    found = ctypes.create_string_buffer(24)
    _LIBC.capget(struct.pack("Ii", _CAPABILITY_VERSION, 0), found)
    if found.raw == bytes(24):
        raise OSError("none")


def _start_a_thread() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
