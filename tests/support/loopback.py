"""Ports of the loopback, and who listens on which."""

import contextlib
import random
import re
import socket
import subprocess
from collections.abc import Iterable

ADDRESS = "127.0.0.1"
# Linux takes the ports of outgoing connections from 32768 on (ip_local_port_range), so none of
# these has gone to a stranger when a stopped service starts again.
_PORTS = range(20000, 32000)


def free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.bind((ADDRESS, port))
            return port


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((ADDRESS, port)) == 0


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses, as host:port, on which these processes listen."""
    listing = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    ours = re.compile(f"pid=({'|'.join(map(str, pids))}),")
    return {line.split()[3] for line in listing.splitlines() if ours.search(line)}
