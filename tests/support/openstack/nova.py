"""A real Nova: its API, conductor and scheduler, and nova-compute next to a private libvirtd."""

import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.ini import ini
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopback import ADDRESS
from tests.support.openstack.environment import python
from tests.support.openstack.keystone import Keystone
from tests.support.openstack.mariadb import MariaDb
from tests.support.openstack.rabbitmq import RabbitMq
from tests.support.openstack.service import Api, Service, isolated
from tests.support.processes import Daemon
from tests.support.waiting import wait_for

DATABASES = ("nova_api", "nova_cell0", "nova")

Sections = Mapping[str, Mapping[str, object]]

# nova-compute first lets go of its queues.
_STOP_SECONDS = 60

# Two or three until it comes to the step at which it dies; the machine may be busy.
_DEATH_SECONDS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """What all processes of Nova stand on."""

    keystone: Keystone
    mariadb: MariaDb
    rabbitmq: RabbitMq

    def settings(self) -> dict[str, dict[str, object]]:
        """Of every process; the databases are not for nova-compute."""
        credentials = self.keystone.credentials()
        asked = ("placement", "glance", "neutron", "cinder")
        return {
            "DEFAULT": {
                "transport_url": self.rabbitmq.url,
                "my_ip": ADDRESS,
                "report_interval": 2,  # seconds, so that one that is up is soon known to be
                "allow_resize_to_same_host": True,
                "graceful_shutdown_timeout": 5,
                "manager_shutdown_timeout": 3,
            },
            **{section: dict(credentials) for section in asked},
            "service_user": {**credentials, "send_service_user_token": True},
            "keystone_authtoken": self.keystone.authtoken(),
            "conductor": {"workers": 1},
            "scheduler": {"workers": 1},
            "quota": {"driver": "nova.quota.NoopQuotaDriver"},
            # Or whatever ends a server while the scheduler restarts fails for lack of its queue.
            "filter_scheduler": {"track_instance_changes": False},
            "key_manager": {"backend": "nova.keymgr.conf_key_mgr.ConfKeyManager"},
        }


class NovaApi(Api):
    """The first to start: it makes the databases."""

    def __init__(self, directory: Path, backbone: Backbone, settings: Sections) -> None:
        super().__init__(directory)
        self._backbone = backbone
        self._settings = settings

    @property
    def url(self) -> str:
        return f"{super().url}/v2.1"

    @property
    def conf(self) -> Path:
        """Of every process of Nova."""
        return self.directory / "etc-nova/nova.conf"

    def configure(self, extra: Sections) -> None:
        """nova.conf, for processes that start from now on."""
        settings = self._backbone.settings()
        settings["api_database"] = {"connection": self._backbone.mariadb.url("nova_api")}
        settings["database"] = {"connection": self._backbone.mariadb.url("nova")}
        settings["DEFAULT"]["state_path"] = self._make_directory("state")
        settings["oslo_concurrency"] = {"lock_path": self._make_directory("locks")}
        self.conf.write_text(ini(merged(settings, extra)))

    def discover_hosts(self) -> None:
        self._manage("nova-manage", *self._files, "cell_v2", "discover_hosts")

    def _configure(self) -> None:
        self.conf.parent.mkdir()
        shutil.copy(python().parents[1] / "etc/nova/api-paste.ini", self.conf.parent)
        self.configure(self._settings)
        cell0 = self._backbone.mariadb.url("nova_cell0")
        self._run_program("nova_databases.py", self.conf, cell0)

    def _command(self) -> list[str]:
        return self._wsgi("nova.wsgi.osapi_compute", self.conf.parent)

    @property
    def _files(self) -> tuple[str, str]:
        return "--config-file", str(self.conf)


class NovaDaemon(Service):
    """The conductor or the scheduler: it serves a queue and no port."""

    def __init__(self, directory: Path, program: str, conf: Path) -> None:
        super().__init__(directory)
        self._name = program
        self._conf = conf

    def _configure(self) -> None:
        """nova.conf is the API's."""

    def _command(self) -> list[str]:
        program = python().with_name(self._name)
        return isolated(self.directory, program, "--config-file", self._conf)

    def _serves(self) -> bool:
        return self.is_running


class NovaCompute:
    """It shares the mounts of its libvirtd: what it mounts, QEMU has to open."""

    def __init__(
        self, libvirtd: PrivateLibvirtd, backbone: Backbone, directory: Path, address: str
    ) -> None:
        self.directory = directory
        self._libvirtd = libvirtd
        self._backbone = backbone
        self._address = address
        self._daemon: Daemon | None = None

    @property
    def host(self) -> str:
        """As Nova calls it."""
        return self._libvirtd.name

    @property
    def hypervisor(self) -> PrivateLibvirtd:
        return self._libvirtd

    @property
    def log(self) -> Path:
        return self.directory / "nova-compute.output"

    @property
    def pid(self) -> int:
        assert self._daemon is not None
        return self._daemon.pid

    def refuse_if_ended(self) -> None:
        """Raise its last words if it has ended by itself."""
        if self._daemon and not self._daemon.is_alive:
            raise RuntimeError(f"nova-compute ended: {self.log.read_text()[-5000:]}")

    def configure(self, extra: Sections) -> None:
        """Anew, for the next start."""
        helper = {"helper_command": f"{python().with_name('privsep-helper')} {self._words}"}
        settings: dict[str, dict[str, object]] = {
            "DEFAULT": {
                "host": self._libvirtd.name,
                "my_ip": self._address,
                "state_path": self.directory,
                "compute_driver": "libvirt.LibvirtDriver",
                "reserved_host_memory_mb": 0,
                "shutdown_timeout": 5,
                "flat_injected": False,
            },
            "libvirt": {
                "connection_uri": self._libvirtd.uri,
                "virt_type": "qemu",
                "cpu_mode": "none",
                "wait_soft_reboot_seconds": 10,
                # By its socket, where that is a link named for its address.
                "live_migration_uri": f"qemu+unix:///system?socket={self._sockets}/%s",
                "live_migration_inbound_addr": self._address,
            },
            "vnc": {"enabled": False},
            "spice": {"enabled": False},
            "oslo_concurrency": {"lock_path": self.directory / "locks"},
            "nova_sys_admin": helper,
            "privsep_osbrick": helper,
            "vif_plug_ovs_privileged": helper,
        }
        self._conf.write_text(ini(merged(merged(self._backbone.settings(), settings), extra)))

    def start(self, *program: object, **variables: object) -> None:
        """By default Nova's own program."""
        self._sockets.mkdir(exist_ok=True, mode=0o755)
        link = self._sockets / self._address
        link.unlink(missing_ok=True)
        link.symlink_to(self._libvirtd.socket)
        words = program or (python().with_name("nova-compute"),)
        command = isolated(self.directory, *words, *self._words.split(), **variables)
        self._daemon = Daemon(command, enter=self._libvirtd.command, log=self.log)

    def run(self, *program: object, **variables: object) -> subprocess.CompletedProcess[str]:
        """Another program on its host, with its configuration, to its end."""
        command = isolated(self.directory, *program, *self._words.split(), **variables)
        words = self._libvirtd.command(*command)
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    def await_end(self) -> None:
        """Of one that dies by itself."""
        assert self._daemon is not None
        daemon = self._daemon
        wait_for(lambda: not daemon.is_alive, _DEATH_SECONDS)
        self.kill()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if daemon := self._daemon:
            self._daemon = None
            daemon.end(number, _STOP_SECONDS)
            daemon.forget()

    @property
    def _sockets(self) -> Path:
        """Of all hosts of the cloud."""
        return self.directory.parent / "sockets"

    @property
    def _words(self) -> str:
        return f"--config-file {self._conf}"

    @property
    def _conf(self) -> Path:
        return self.directory / "nova.conf"


def merged(settings: Sections, more: Sections) -> Sections:
    """What ``more`` says of an option is what counts."""
    both = {**settings, **more}
    return {name: {**settings.get(name, {}), **more.get(name, {})} for name in both}
