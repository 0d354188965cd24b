"""What the services have in common: a pretended host, one daemon, one port of the loopback."""

import abc
import signal
from pathlib import Path
from typing import Any

import openstack
from openstack.connection import Connection

from tests.support.loopback import ADDRESS, accepts, free_port
from tests.support.namespace import HostNamespaces
from tests.support.openstack.environment import python
from tests.support.processes import Daemon, find_pids
from tests.support.running import Running
from tests.support.waiting import wait_for

# Three seconds for Glance, hardly more for Cinder with two backends; the machine may be busy.
_START_SECONDS = 90
_STOP_SECONDS = 30
_MANAGE_SECONDS = 600

_PROGRAMS = Path(__file__).parent / "programs"


class Service(Running):
    """One daemon; all that it writes lies in `directory`.

    stop() makes it unreachable; start() brings it back with all that it knew, on the same port.
    close() ends it for good.
    """

    _stop_signal = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._name = type(self).__name__.lower()
        self._host = HostNamespaces(directory, name=self._name, network=None)
        self._daemon: Daemon | None = None

    @property
    def is_running(self) -> bool:
        return self._daemon is not None and self._daemon.is_alive

    @property
    def pid(self) -> int:
        if self._daemon is None:
            raise RuntimeError(f"{self._name} is not running")
        return self._daemon.pid

    @property
    def pids(self) -> set[int]:
        """Every process on its host: stopped, it has the one that holds the namespaces."""
        return set(find_pids(self._host.holds))

    def start(self) -> None:
        """Start it unless it runs, and return when it serves."""
        if not self._host.is_open:
            self._host.open()
            self._configure()
        if not self.is_running:
            self._end(signal.SIGKILL)  # of one that was killed, only what is left
            self._daemon = Daemon(self._command(), enter=self._host.command, log=self._output)
            wait_for(self._serves, _START_SECONDS)
            self._furnish()

    def stop(self) -> None:
        """End it as an administrator would, and wait for it."""
        self._end(self._stop_signal)

    def close(self) -> None:
        """End it at once; the directory stays for whoever reads its logs."""
        self._end(signal.SIGKILL)
        self._host.close()

    @abc.abstractmethod
    def _configure(self) -> None:
        """Once, before the first start."""

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """The words that become the daemon; the first is a path."""

    def _furnish(self) -> None:  # most need nothing
        """Make what is to be there after each start."""

    def _end(self, number: signal.Signals) -> None:
        if daemon := self._daemon:
            self._daemon = None
            daemon.end(number, _STOP_SECONDS)
            self._host.clear()  # what it had started and may wait for ever, for Ceph, say
            daemon.forget()

    def _serves(self) -> bool:
        if not self.is_running:
            raise RuntimeError(f"{self._name} ended: {self._output.read_text()[-3000:]}")
        return accepts(self.port)

    @property
    def _output(self) -> Path:
        return self.directory / f"log/{self._name}.output"

    def _make_directory(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(exist_ok=True)
        return path


class Api(Service):
    """A service of OpenStack with an API, which a program in programs/ serves."""

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def _program(self, name: str, *words: object) -> list[str]:
        program = (python(), "-B", "-W", "ignore", _PROGRAMS / name, *words, self.port)
        return isolated(self.directory, *program)

    def _wsgi(self, module: str, directory: Path) -> list[str]:
        """Its own WSGI module, with its configuration file in that directory."""
        return self._program("wsgi_api.py", module, directory)

    def _run_program(self, name: str, *words: object) -> None:
        """To its end; a failing one raises."""
        command = isolated(self.directory, python(), "-W", "ignore", _PROGRAMS / name, *words)
        self._host.run(*command, seconds=_MANAGE_SECONDS)

    def _manage(self, program: str, *words: object) -> None:
        """One of its administration commands; a failing one raises."""
        command = isolated(self.directory, python().with_name(program), *words)
        self._host.run(*command, seconds=_MANAGE_SECONDS)


def isolated(directory: Path, *words: object, **variables: object) -> list[str]:
    """The command without our environment, where there may be a proxy."""
    (directory / "tmp").mkdir(exist_ok=True)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": directory,
        "TMPDIR": directory / "tmp",
        **variables,
    }
    return [
        *("/usr/bin/env", "--ignore-environment"),
        *(f"{variable}={value}" for variable, value in environment.items()),
        *map(str, words),
    ]


def connect(**urls: str) -> Connection:
    """A client of these services: connect(image=…, block_storage=…)."""
    where: dict[str, Any] = {f"{name}_endpoint_override": url for name, url in urls.items()}
    return openstack.connect(auth_type="none", load_envvars=False, load_yaml_config=False, **where)
