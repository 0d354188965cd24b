"""Ports and sockets of this machine, and services in the network that answer or not."""

import errno
import socket
from pathlib import Path

_ANSWER = 5.0
"""Seconds that a service has to say its first word."""
_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def is_taken(address: str, port: int, protocol: str) -> bool:
    """Whether something listens there already."""
    with socket.socket(socket.AF_INET, _KINDS[protocol]) as probe:
        if protocol == "tcp":  # as QEMU does: a connection that has just ended is in nobody's way
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def is_served(path: Path) -> bool:
    """Whether something listens at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWER)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def speaks_ssh(address: str, port: int) -> bool:
    """Whether an ssh server is there: a forwarded port is open before anything answers."""
    try:
        with socket.create_connection((address, port), timeout=_ANSWER) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
