"""Hosts within the nested machine, at the command of a test outside of it.

``python -m tests.support.openstack.nested_host DIRECTORY PORT PORTS NAME...``: each host is a
libvirtd with a volume group of its own. What serves one of the PORTS of the loopback outside
serves it here, too. Who listens at PORT sends one request a line, and gets one answer each
(tests/support/openstack/nested.py).
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.model.sizes import GiB
from tests.lvm.conftest import give_devices
from tests.lvm.volume_group import EXTENT, group_in_file
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.processes import Daemon
from tests.support.session import share_mounts

OUTSIDE = "10.0.2.2"
_BUFFER = 1 << 16
_SIZE = 16 * GiB
"""Of a volume group: of the file only what is written takes space."""


class Host:
    def __init__(self, libvirtd: PrivateLibvirtd) -> None:
        self._libvirtd = libvirtd
        self._daemon: Daemon | None = None

    def run(self, words: list[str], input: str = "", seconds: float = 300) -> dict[str, Any]:
        done = subprocess.run(
            self._libvirtd.command(*words),
            input=input,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def begin(self, words: list[str], log: str) -> int:
        self._daemon = Daemon(words, enter=self._libvirtd.command, log=Path(log))
        return self._daemon.pid

    def is_alive(self) -> bool:
        return self._daemon is not None and self._daemon.is_alive

    def end(self, number: int, seconds: float) -> None:
        if daemon := self._daemon:
            self._daemon = None
            daemon.end(signal.Signals(number), seconds)
            daemon.forget()


def main(directory: str, port: str, ports: str, *names: str) -> None:
    for each in ports.split(","):
        _serve_as_outside(int(each))
    root = Path(directory)
    root.mkdir(parents=True)
    share_mounts(root)
    with contextlib.ExitStack() as stack:
        hosts = {}
        for name in names:
            libvirtd = stack.enter_context(PrivateLibvirtd(root / f"nova-{name}", name=name))
            give_devices(libvirtd)
            group = group_in_file(f"group-{name}", root / f"{name}.raw", EXTENT, _SIZE)
            stack.enter_context(group)
            hosts[name] = Host(libvirtd)
        with socket.create_connection((OUTSIDE, int(port))) as line:
            _obey(line, hosts)
    os._exit(0)


def _obey(line: socket.socket, hosts: Mapping[str, Host]) -> None:
    with line.makefile("rw") as requests:
        for text in requests:
            request = json.loads(text)
            try:
                verb = getattr(hosts[request.pop("host")], request.pop("verb"))
                answer = {"answer": verb(**request)}
            except Exception:
                answer = {"error": traceback.format_exc()}
            requests.write(json.dumps(answer) + "\n")
            requests.flush()


def _serve_as_outside(port: int) -> None:
    server = socket.create_server((ADDRESS, port))

    def serve() -> None:
        while True:
            client, _ = server.accept()
            beyond = socket.create_connection((OUTSIDE, port))
            for source, target in ((client, beyond), (beyond, client)):
                threading.Thread(target=_carry, args=(source, target), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BUFFER):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(*sys.argv[1:])
