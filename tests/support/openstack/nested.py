"""nova-compute in the nested machine, whose kernel has what LVM needs; all that it talks to runs
outside, on the loopback."""

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lxml import etree

from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.openstack.environment import python
from tests.support.openstack.nova import Backbone, NovaCompute, Sections
from tests.support.openstack.service import isolated
from tests.support.running import Running
from tests.support.waiting import wait_for

_REPOSITORY = Path(__file__).parents[3]
_MEMORY = "3G"

# A minute for the machine and its daemons, and the machine around it may be busy.
_START_SECONDS = 600
_STOP_SECONDS = 300
_DEATH_SECONDS = 900
_LIFE_SECONDS = 3600


class NestedMachine(Running):
    """With these hosts. All of their files lie in `directory`, in there."""

    def __init__(self, directory: Path, log: Path, ports: Sequence[int], *hosts: str) -> None:
        self.directory = directory
        self._log = log
        self._ports = ports
        self._hosts = hosts
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        server = self._stack.enter_context(socket.create_server((ADDRESS, 0)))
        server.settimeout(_START_SECONDS)
        options = ("--seconds", _LIFE_SECONDS, "--memory", _MEMORY, "--loopback")
        program = (".venv/bin/python", "-m", "tests.support.openstack.nested_host")
        ports = ",".join(map(str, self._ports))
        words = (
            *(_REPOSITORY / "tools/nested/run", *options, "--with", python().parents[1]),
            *(*program, self.directory, server.getsockname()[1], ports, *self._hosts),
        )
        output = self._stack.enter_context(self._log.open("wb"))
        machine = subprocess.Popen([str(each) for each in words], stdout=output, stderr=output)
        self._stack.callback(machine.wait, _STOP_SECONDS)
        self._stack.callback(machine.terminate)
        try:
            line, _ = server.accept()
        except TimeoutError as error:
            raise RuntimeError(f"nobody called: {self._log.read_text()[-3000:]}") from error
        self._answers = self._stack.enter_context(line).makefile("rw")

    def close(self) -> None:
        self._stack.close()

    def ask(self, host: str, verb: str, **request: object) -> Any:
        """What nested_host.Host answers."""
        self._answers.write(json.dumps({"host": host, "verb": verb, **request}) + "\n")
        self._answers.flush()
        text = self._answers.readline()
        assert text, f"the nested machine has ended: {self._log.read_text()[-3000:]}"
        answer = json.loads(text)
        assert "error" not in answer, answer["error"]
        return answer["answer"]


class NestedHypervisor(PrivateLibvirtd):
    """How one of its libvirtds is spoken to from outside: by commands."""

    def __init__(self, machine: NestedMachine, name: str) -> None:
        super().__init__(machine.directory / f"nova-{name}", name=name)
        self.machine = machine

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    def run(
        self, *words: str, seconds: float = 300, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = self.attempt(*words, seconds=seconds, input=input)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr.strip()}")
        return done

    def attempt(
        self, *words: str, seconds: float = 300, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """It may fail."""
        came = self.machine.ask(self.name, "run", words=words, input=input, seconds=seconds)
        return subprocess.CompletedProcess(words, came["status"], came["stdout"], came["stderr"])

    def mount(self, directory: Path, place: Path) -> None:
        self.run("mkdir", "-p", str(directory), str(place))
        super().mount(directory, place)

    def virsh(self, *words: str) -> str:
        return self.run("virsh", "--connect", self.uri, *words).stdout

    def disks(self, server: str) -> list[etree._Element]:
        return etree.fromstring(self.virsh("dumpxml", server)).findall("devices/disk")

    def volumes(self) -> dict[str, int]:
        """Sizes by name, as LVM itself says."""
        plain = ("--noheadings", "--units", "b", "--nosuffix")
        rows = self.run("lvs", *plain, "--options", "lv_name,lv_size", self.group).stdout
        return {name: int(size) for name, size in map(str.split, rows.splitlines())}

    def device(self, volume: str) -> str:
        return f"/dev/{self.group}/{volume}"

    def digest(self, volume: str) -> str:
        return self.run("sha256sum", self.device(volume)).stdout.split()[0]


class NestedCompute(NovaCompute):
    start_seconds = 900

    def __init__(
        self, hypervisor: NestedHypervisor, backbone: Backbone, directory: Path, address: str
    ) -> None:
        super().__init__(hypervisor, backbone, directory, address)
        self._nested = hypervisor
        self._runs = False

    @property
    def pid(self) -> int:
        return self._pid

    def refuse_if_ended(self) -> None:
        if self._runs and not self._is_alive():
            raise RuntimeError(f"nova-compute ended: {self.read_log()[-5000:]}")

    def read_log(self) -> str:
        return self._nested.run("cat", str(self.log)).stdout

    def configure(self, extra: Sections) -> None:
        super().configure(extra)
        self._put(self._conf, self._conf.read_text())

    def start(self, *program: object, **variables: object) -> None:
        link = self._sockets / self._address
        self._nested.run("mkdir", "-p", str(self._sockets))
        self._nested.run("ln", "-sfn", str(self._nested.socket), str(link))
        words = program or (python().with_name("nova-compute"),)
        self._send_installed()
        command = isolated(self.directory, *words, *self._words.split(), **variables)
        self._pid = self._ask("begin", words=command, log=str(self.log))
        self._runs = True

    def run(self, *program: object, **variables: object) -> subprocess.CompletedProcess[str]:
        command = isolated(self.directory, *program, *self._words.split(), **variables)
        return self._nested.attempt(*command, seconds=_DEATH_SECONDS)

    def await_end(self) -> None:
        wait_for(lambda: not self._is_alive(), _DEATH_SECONDS)
        self.kill()

    def _end(self, number: signal.Signals) -> None:
        if self._runs:
            self._runs = False
            self._ask("end", number=int(number), seconds=_STOP_SECONDS)

    def _is_alive(self) -> bool:
        return bool(self._ask("is_alive"))

    def _ask(self, verb: str, **request: object) -> Any:
        return self._nested.machine.ask(self.host, verb, **request)

    def _send_installed(self) -> None:
        """What environment.python_path() has made, out here."""
        for path in (self.directory / "millpond-installed").rglob("*"):
            if path.is_file():
                self._put(path, path.read_text())
        self._nested.run("mkdir", "-p", str(self.directory / "tmp"))

    def _put(self, path: Path, text: str) -> None:
        self._nested.run("mkdir", "-p", str(path.parent))
        self._nested.run("tee", str(path), input=text)
