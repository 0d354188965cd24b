"""The command and the host as tests use them: private libvirtd, directory of their own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.libvirt.pools import Pools
from millpond.model.formats import Backend
from millpond.model.names import ServerId
from millpond.model.server import Server
from tests.support import forked
from tests.support.guests import MicroGuest
from tests.support.host_with import host_with
from tests.support.waiting import wait_for

COMMAND = Path(sys.executable).with_name("millpond")

_CONFIGURATION = """\
[DEFAULT]
state_path = {state}
{default}
[libvirt]
connection_uri = {uri}
virt_type = qemu
{libvirt}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Millpond:
    """One state directory with its configuration file."""

    directory: Path
    uri: str

    @property
    def config(self) -> Path:
        return self.directory / "millpond.conf"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def disks(self) -> Path:
        return self.state / "instances" / "disks"

    @property
    def bases(self) -> Path:
        return self.state / "instances" / "_base"

    def configure(self, libvirt: str = "", default: str = "") -> None:
        text = _CONFIGURATION.format(
            state=self.state, uri=self.uri, libvirt=libvirt, default=default
        )
        self.config.write_text(text)

    def host(self) -> Host:
        return Deployment.load([self.config]).host()

    def make_pools(self) -> None:
        """So that the world does not change by making them when a command is refused."""
        host = self.host()
        assert host.records.owner
        assert host.pools.for_disk(Backend.RAW) is not host.pools.base

    def run(self, *words: object, seconds: float = 100) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, as a person would type it into a pipe."""
        told = ["--config-file", str(self.config), *map(str, words)]
        if "PYTHONPATH" not in os.environ:
            return forked.command(told, seconds)
        # What can be loaded is found out at the very beginning of a process.
        return subprocess.run(
            [str(COMMAND), *told],
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def ok(self, *words: object) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: object) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def fails(self, *words: object) -> tuple[int, str]:
        """The exit status and the message; a traceback is never an answer."""
        done = self.run(*words)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr

    def server(self, name: str) -> Server:
        return self.host().shared.server(name)

    def console(self, id: ServerId | str) -> str:
        log = self.state / "instances" / id / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_for_console(self, id: ServerId | str, text: str, seconds: float = 30) -> str:
        try:
            wait_for(lambda: text in self.console(id), seconds)
        except AssertionError as error:
            shown = self.console(id)[-2000:]
            raise AssertionError(f"{text!r} not within {seconds} s, but {shown!r}") from error
        return self.console(id)


def without_files(host: Host) -> Host:
    """The host as if none of its files could be opened here."""
    locks = host.shared.locks
    pools = Pools(host.libvirtd, host.pool_plan, locks, probe=lambda _pool: False)
    disks = replace(host.disks, storage=lambda backend: LibvirtStorage(backend, pools))
    return host_with(host, disks=disks)


def converted(guest: MicroGuest, format: str, directory: Path, *options: str) -> Path:
    """The guest in another format, by QEMU's name of it."""
    target = directory / f"guest.{format}"
    words = ["qemu-img", "convert", "-f", "raw", "-O", format, *options]
    subprocess.run([*words, str(guest.path), str(target)], check=True)
    return target
