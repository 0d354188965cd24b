"""A real libvirtd for the tests that shares nothing with the machine's own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import libvirt

from tests.support.namespace import HostNamespaces
from tests.support.processes import Daemon, end_processes
from tests.support.running import Running
from tests.support.waiting import wait_for

_PACKAGES = "apt-get install libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils"
_PROGRAMS = ("libvirtd", "virtlogd", "qemu-system-x86_64", "qemu-img")

# A tenth of a second as a rule; the machine may be busy.
_START_SECONDS = 60
_STOP_SECONDS = 30

_UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)


def reason_to_skip() -> str | None:
    """Why no private libvirtd can run here, with the command that would change that."""
    absent = [program for program in _PROGRAMS if _find(program) is None]
    if absent:
        return f"{', '.join(absent)} not installed: {_PACKAGES}"
    return None


class PrivateLibvirtd(Running):
    """libvirtd and virtlogd with their state in `directory`; guests run as libvirt-qemu under TCG.

    stop() and kill() end libvirtd only, and guests go on, as on any host; start() finds them
    again. close() ends all of it. With `network`, a bridge and an address on it, the host has a
    network of its own and also listens on TCP, without authentication: for test machines only.
    `qemu` are lines of its qemu.conf.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "pond",
        network: tuple[str, str] | None = None,
        qemu: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.name = name
        self._qemu = qemu
        self._network = network
        self._host_uuid = uuid.uuid4()
        self._host = HostNamespaces(directory, name=name, network=network)
        self._daemons: dict[str, Daemon] = {}
        self._past: list[Daemon] = []

    @property
    def uri(self) -> str:
        return f"qemu:///system?socket={self._socket('libvirt-sock')}"

    @property
    def socket(self) -> Path:
        return self._socket("libvirt-sock")

    @property
    def tcp_uri(self) -> str:
        return f"qemu+tcp://{self.address}/system"

    @property
    def reached_by(self) -> str:
        """The URI of who comes from elsewhere, if it has a network."""
        return self.tcp_uri if self._network else self.uri

    @property
    def address(self) -> str:
        if self._network is None:
            raise RuntimeError(f"{self.name} has no network of its own")
        return self._network[1].partition("/")[0]

    @property
    def pid(self) -> int:
        if not self.is_running:
            raise RuntimeError(f"libvirtd of {self.name} is not running")
        return self._daemons["libvirtd"].pid

    @property
    def is_running(self) -> bool:
        return self._runs("libvirtd")

    def start(self) -> None:
        """Start what is not running and return when libvirtd answers."""
        if not self._host.is_open:
            self._host.open()
            self._configure()
        (self.directory / "run" / "lock").mkdir(exist_ok=True)  # for who opens a console
        if not self._runs("virtlogd"):
            self._spawn("virtlogd", socket_name="virtlogd-sock")
        if not self._runs("libvirtd"):
            listen = ["--listen"] if self._network else []
            self._spawn("libvirtd", *listen, socket_name="libvirt-sock")
        with self.connect():
            pass

    def stop(self) -> None:
        """End libvirtd as an administrator would, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to libvirtd alone."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def reboot(self) -> None:
        """After a loss of power."""
        self.lose_power()
        self.start()

    def lose_power(self) -> None:
        """Every process is gone, and nobody was told before: QEMU has closed nothing. /run is
        empty, where libvirt's drivers note that they have started what starts with the host; but
        for the time of boot, which all hosts of this machine have to agree on."""
        self._host.clear(signal.SIGKILL)
        self._past += self._daemons.values()
        self._daemons = {}
        for each in (self.directory / "run").iterdir():
            if each.name != "utmp":
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` on this host; it becomes them."""
        return self._host.command(*words)

    def run(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on this host; a failing one raises."""
        return self._host.run(*words, seconds=seconds)

    def mount(self, directory: Path, place: Path) -> None:
        """Show a directory of the machine at another place of this host."""
        mounts = self.run("cat", "/proc/self/mounts").stdout
        if directory != place and f" {place} " not in mounts:
            self.run("mount", "--bind", str(directory), str(place))

    @contextlib.contextmanager
    def connect(self) -> Iterator[libvirt.virConnect]:
        connection = libvirt.open(self.uri)
        try:
            yield connection
        finally:
            with contextlib.suppress(libvirt.libvirtError):  # the daemon may be gone by now
                connection.close()

    def clear(self) -> None:
        """Remove every domain, pool and network, whatever a test left of them or of the daemon."""
        end_processes(self._is_conversion)
        if not self.is_running:
            self.start()
        with self.connect() as connection:
            wait_for(lambda: _cleared(connection), _STOP_SECONDS)

    def close(self) -> None:
        """End guests, daemons and namespaces; the directory stays for whoever reads its logs."""
        self._host.close()
        for daemon in (*self._daemons.values(), *self._past):
            daemon.forget()
        self._daemons, self._past = {}, []

    def _configure(self) -> None:
        (self.directory / "etc/libvirtd.conf").write_text(
            "\n".join(
                (
                    # The socket lets anyone in who may open it: root.
                    'auth_unix_ro = "none"',
                    'auth_unix_rw = "none"',
                    'unix_sock_rw_perms = "0700"',
                    "listen_tls = 0",
                    f"listen_tcp = {int(self._network is not None)}",
                    'auth_tcp = "none"',
                    f'host_uuid = "{self._host_uuid}"',
                    'log_outputs = "2:file:/var/log/libvirt/libvirtd.log"',
                    "",
                )
            )
        )
        (self.directory / "etc/pki").mkdir(exist_ok=True, mode=0o755)
        (self.directory / "etc/qemu.conf").write_text(
            "\n".join(
                (
                    # QEMU stays in our namespace: it sees later mounts, and close() finds it.
                    "namespaces = [ ]",
                    # No AppArmor, whose profiles would be the machine's. DAC is always on.
                    'security_driver = "none"',
                    # Empty, but for a test that puts certificates there.
                    'migrate_tls_x509_cert_dir = "/etc/libvirt/pki"',
                    *self._qemu,
                    "",
                )
            )
        )

    def _is_conversion(self, pid: int) -> bool:
        # A killed libvirtd leaves its qemu-img writing into what is to be removed.
        if not self._host.holds(pid):
            return False
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/comm").read_text().strip() == "qemu-img"
        return False

    def _runs(self, program: str) -> bool:
        return program in self._daemons and self._daemons[program].is_alive

    def _end(self, number: signal.Signals) -> None:
        if daemon := self._daemons.pop("libvirtd", None):
            # Its runner goes on for as long as there are guests.
            self._past.append(daemon)
            daemon.end(number, _STOP_SECONDS)

    def _spawn(self, program: str, *words: str, socket_name: str) -> None:
        path = _find(program)
        if path is None:
            raise RuntimeError(f"{program} not installed: {_PACKAGES}")
        if dead := self._daemons.pop(program, None):
            self._past.append(dead)
        daemon = Daemon([path, *words], enter=self._host.command, log=self._output(program))
        self._daemons[program] = daemon
        self._await_socket(daemon, socket_name)

    def _await_socket(self, daemon: Daemon, name: str) -> None:
        def accepts() -> bool:
            if not daemon.is_alive:
                raise RuntimeError(f"{name} never opened: {self._last_words()}")
            with socket.socket(socket.AF_UNIX) as client:
                return client.connect_ex(str(self._socket(name))) == 0

        wait_for(accepts, _START_SECONDS)

    def _last_words(self) -> str:
        logs = [*map(self._output, ("virtlogd", "libvirtd")), self.directory / "log/libvirtd.log"]
        return "\n".join(log.read_text()[-2000:] for log in logs if log.exists())

    def _output(self, program: str) -> Path:
        return self.directory / f"log/{program}.output"

    def _socket(self, name: str) -> Path:
        return self.directory / "run/libvirt" / name


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _cleared(connection: libvirt.virConnect) -> bool:
    """One round of removing; what is busy (a pool that is building) is for the next one."""
    for domain in connection.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):
            _remove_domain(domain)
    for thing in (*connection.listAllStoragePools(), *connection.listAllNetworks()):
        with contextlib.suppress(libvirt.libvirtError):
            _remove(thing)
    left = connection.listAllDomains, connection.listAllStoragePools, connection.listAllNetworks
    return not any(listing() for listing in left)


def _remove_domain(domain: libvirt.virDomain) -> None:
    persistent = domain.isPersistent()
    if domain.isActive():
        domain.destroy()
    if persistent:
        domain.undefineFlags(_UNDEFINE)


def _remove(thing: libvirt.virStoragePool | libvirt.virNetwork) -> None:
    persistent = thing.isPersistent()
    if thing.isActive():
        thing.destroy()
    if persistent:
        thing.undefine()
