"""A real Ceph cluster of one node: a monitor, a manager and one OSD on a sparse file.

All that it writes lies in one directory, and it listens on 127.0.0.1 only. Its daemons live on
a pretended host (namespace.py), like a private libvirtd: so the sweeper of sessions finds them.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ini import ini
from tests.support.loopback import ADDRESS, free_port
from tests.support.namespace import HostNamespaces
from tests.support.processes import Daemon
from tests.support.running import Running
from tests.support.waiting import wait_for

_PACKAGES = (
    "apt-get install ceph-mon ceph-mgr ceph-osd ceph-common"
    " qemu-block-extra libvirt-daemon-driver-storage-rbd"
)
_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "rados", "rbd", "monmaptool")

_MIB = 1024**2
_GIB = 1024**3

# 6 s for the first start, 3 s for later ones, half a second to stop; the machine may be busy.
_START_SECONDS = 60
_STOP_SECONDS = 30

# Each kind of daemon and the name of the only one, in the order in which they start. They stop in
# the reverse: an OSD waits until a monitor has noted its end, or for 5 s.
_DAEMONS = {"mon": "a", "mgr": "x", "osd": "0"}

# The question to a daemon's own socket, and the answer once it serves.
_SERVES: dict[str, tuple[str, str, object]] = {
    "mon": ("mon_status", "state", "leader"),
    "mgr": ("mgr_status", "initialized", True),
    "osd": ("status", "state", "active"),
}

_ALLOWED: dict[str, dict[str, str]] = {
    "mon.": {"mon": "allow *"},
    "mgr.x": {"mon": "allow profile mgr", "osd": "allow *"},
    "osd.0": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"},
    "client.admin": {"mon": "allow *", "mgr": "allow *", "osd": "allow *"},
}


def reason_to_skip() -> str | None:
    """Why no cluster can run here or QEMU cannot use it, with the command that changes that."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if not _qemu_knows_rbd():
        absent.append("the rbd driver of QEMU")
    if absent:
        return f"{', '.join(absent)} not installed: {_PACKAGES}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdPool:
    """A pool of the cluster, the user who may use it, and the libvirt secret with their key."""

    name: str
    user: str
    secret: str


class Ceph(Running):
    """One cluster with its state in `directory`, cephx, one replica and no pool yet.

    stop() makes it unreachable; start() brings it back with all its pools, on the same port.
    close() ends it for good.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._fsid = uuid.uuid4()
        self._port = free_port()
        self._host = HostNamespaces(directory, name="ceph", network=None)
        self._daemons: dict[str, Daemon] = {}

    @property
    def conf(self) -> Path:
        """For clients: where the monitor is, and for root also the key of client.admin."""
        return self.directory / "ceph.conf"

    @property
    def monitors(self) -> tuple[tuple[str, int], ...]:
        return ((ADDRESS, self._port),)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(daemon.pid for daemon in self._daemons.values())

    def start(self) -> None:
        """Start what is not running and return when clients are served."""
        if not self._host.is_open:
            self._host.open()
            self._make_cluster()
        stopped = [kind for kind in _DAEMONS if not self._runs(kind)]
        for kind in stopped:
            self._spawn(kind)
        for kind in stopped:
            self._await(kind)
        if stopped:
            # libvirt calls this the capacity of a pool; the first report takes a moment.
            wait_for(lambda: self._ceph("df")["stats"]["total_bytes"] > 0, _START_SECONDS)

    def stop(self) -> None:
        """End the daemons as an administrator would, and wait for them."""
        self._end_daemons(signal.SIGTERM)

    def close(self) -> None:
        """End it at once; the directory stays for whoever reads its logs."""
        self._end_daemons(signal.SIGKILL)
        self._host.close()

    def make_pool(self, name: str) -> None:
        self._ceph("osd", "pool", "create", name)
        self.rbd("pool", "init", name)

    def rbd_pools(self) -> list[str]:
        names: list[str] = self._ceph("osd", "pool", "ls")
        return names

    def remove_pool(self, name: str) -> None:
        self._ceph("osd", "pool", "delete", name, name, "--yes-i-really-really-mean-it")

    def make_user(self, name: str, *pools: str) -> str:
        """The key of client.`name`, who may use the images in these pools and nothing else."""
        images = ", ".join(f"profile rbd pool={pool}" for pool in pools)
        caps = ("mon", "profile rbd", "mgr", images, "osd", images)
        answer = self._ceph("auth", "get-or-create-key", f"client.{name}", *caps)
        key: str = answer["key"]
        return key

    def client_conf(self, access: RbdPool) -> Path:
        """The configuration file of a user of a pool, with a keyring that only root may read."""
        conf, keyring = (self.directory / f"{access.user}.{each}" for each in ("conf", "keyring"))
        keyring.touch(mode=0o600)
        keyring.write_text(self._run("ceph", "auth", "get", f"client.{access.user}"))
        settings = self._client_settings()["global"]
        conf.write_text(ini({"global": settings, f"client.{access.user}": {"keyring": keyring}}))
        return conf

    def make_client(self, directory: Path, user: str, *pools: str) -> None:
        """What client.`user` keeps in /etc/ceph: where the monitor is, and the key."""
        directory.mkdir(exist_ok=True)
        key = self.make_user(user, *pools)
        (directory / "ceph.conf").write_text(ini({"global": self._client_settings()["global"]}))
        keyring = directory / f"ceph.client.{user}.keyring"
        keyring.touch(mode=0o600)
        keyring.write_text(ini({f"client.{user}": {"key": key}}))

    def rbd(self, *words: str) -> str:
        """Run rbd as client.admin and return what it printed; a failing one raises."""
        return self._run("rbd", *words)

    def watchers(self, image: str) -> list[str]:
        """The addresses of those who have POOL/IMAGE open for writing."""
        found = json.loads(self.rbd("status", image, "--format", "json"))
        return [each["address"] for each in found.get("watchers", ())]

    def end_leases(self, pool: str) -> None:
        """As time does to the locks of processes that died."""
        for name in self._run("rados", "--pool", pool, "ls").split():
            if name.startswith("millpond."):
                self._run("rados", "--pool", pool, "rm", name)

    def lockers(self, pool: str, thing: str, lock: str) -> list[dict[str, str]]:
        """Who holds an advisory lock on an object."""
        words = ("--pool", pool, "lock", "info", thing, lock, "--format", "json")
        found: list[dict[str, str]] = json.loads(self._run("rados", *words))["lockers"]
        return found

    def bytes_written(self) -> int:
        """What clients have had written, to any pool, since the OSD started.

        The OSD counts the content of each write before it answers it, so this is exact at once;
        it sees a flattened or copied image, and of a clone only some tens of bytes of its header.
        `ceph df` would be seconds late and would not see what was overwritten or removed since.
        """
        written: int = _ask(self._socket("osd"), "perf dump")["osd"]["op_in_bytes"]
        return written

    def data_objects(self, pool: str) -> int:
        """How many objects hold image data, as against headers, in a pool."""
        listed = self._run("rados", "--pool", pool, "ls").splitlines()
        return sum(name.startswith("rbd_data.") for name in listed)

    def _make_cluster(self) -> None:
        for kind in _DAEMONS:
            self._data(kind).mkdir(parents=True)
        self._mgr_modules.mkdir()
        self._keyring.touch(mode=0o600)
        self._keyring.write_text(ini({name: _entry(name) for name in _ALLOWED}))
        self.conf.write_text(ini(self._client_settings()))
        self._daemon_conf.write_text(ini({"global": self._daemon_settings()}))
        self._make_monitor()
        self._spawn("mon")
        self._await("mon")
        self._make_osd()

    def _make_monitor(self) -> None:
        monmap = str(self.directory / "monmap")
        self._host.run(
            *("monmaptool", "--create", "--fsid", str(self._fsid)),
            *("--addv", _DAEMONS["mon"], f"[v2:{ADDRESS}:{self._port}]", monmap),
        )
        self._host.run(*self._daemon_command("mon"), "--mkfs", "--monmap", monmap)

    def _make_osd(self) -> None:
        osd_uuid = str(uuid.uuid4())
        self._host.run(*self._daemon_command("osd"), "--mkfs", "--osd-uuid", osd_uuid)
        self._ceph("osd", "new", osd_uuid, _DAEMONS["osd"])

    def _client_settings(self) -> dict[str, dict[str, object]]:
        where = {"fsid": self._fsid, "mon host": f"v2:{ADDRESS}:{self._port}"}
        return {"global": where, "client.admin": {"keyring": self._keyring}}

    def _daemon_settings(self) -> dict[str, object]:
        return {
            **self._client_settings()["global"],
            "public addr": ADDRESS,
            "cluster addr": ADDRESS,
            "keyring": self._keyring,
            **{f"{kind} data": self._data(kind) for kind in _DAEMONS},
            "run dir": self.directory / "run",
            "crash dir": self.directory / "log",
            "log file": self.directory / "log/$type.log",
            "mon cluster log file": self.directory / "log/cluster.log",
            "admin socket": self._socket("$type"),
            # None of them: they cost 270 MB and 2 s, and one makes a pool of its own.
            "mgr module path": self._mgr_modules,
            "mgr initial modules": "",
            # Changes of its maps are decided on at once and not gathered for a second.
            "paxos propose interval": 0.05,
            "mon allow pool delete": True,
            "mon allow pool size one": True,
            "osd pool default size": 1,
            "osd pool default pg num": 8,
            "osd pool default pg autoscale mode": "off",
            "osd max scrubs": 0,
            # Sparse: it costs what is written.
            "bluestore block size": 16 * _GIB,
            # With a cache of fixed size the OSD stays below 350 MB. The other way to bound it,
            # osd_memory_target, begins at 896 MiB.
            "bluestore cache autotune": False,
            "bluestore cache size": 64 * _MIB,
        }

    def _runs(self, kind: str) -> bool:
        return kind in self._daemons and self._daemons[kind].is_alive

    def _spawn(self, kind: str) -> None:
        if dead := self._daemons.pop(kind, None):
            dead.forget()
        words = [*self._daemon_command(kind), "--foreground"]
        self._daemons[kind] = Daemon(words, enter=self._host.command, log=self._output(kind))

    def _daemon_command(self, kind: str) -> list[str]:
        program = shutil.which(f"ceph-{kind}")
        if program is None:
            raise RuntimeError(f"ceph-{kind} not installed: {_PACKAGES}")
        return [program, "--conf", str(self._daemon_conf), "--id", _DAEMONS[kind]]

    def _await(self, kind: str) -> None:
        question, field, expected = _SERVES[kind]

        def serves() -> bool:
            if not self._runs(kind):
                raise RuntimeError(f"ceph-{kind} ended: {self._output(kind).read_text()[-2000:]}")
            # Until then it has no socket, or one that answers in no JSON.
            with contextlib.suppress(OSError, ValueError):
                return bool(_ask(self._socket(kind), question).get(field) == expected)
            return False

        wait_for(serves, _START_SECONDS)

    def _end_daemons(self, number: signal.Signals) -> None:
        for kind in reversed(_DAEMONS):
            if daemon := self._daemons.pop(kind, None):
                daemon.end(number, _STOP_SECONDS)
                daemon.forget()

    def _ceph(self, *words: str) -> Any:
        """What the command answers, if it answers anything."""
        answer = self._run("ceph", "--format", "json", *words)
        return json.loads(answer) if answer.strip() else None

    def _run(self, program: str, *words: str) -> str:
        return self._host.run(program, "--conf", str(self.conf), "--id", "admin", *words).stdout

    @property
    def _daemon_conf(self) -> Path:
        return self.directory / "daemons.conf"

    @property
    def _keyring(self) -> Path:
        return self.directory / "keyring"

    @property
    def _mgr_modules(self) -> Path:
        return self.directory / "no-modules"

    def _data(self, kind: str) -> Path:
        return self.directory / "data" / kind

    def _output(self, kind: str) -> Path:
        return self.directory / f"log/{kind}.output"

    def _socket(self, kind: str) -> Path:
        return self.directory / f"run/{kind}.asok"


def _qemu_knows_rbd() -> bool:
    # It lists rbd even when the module is missing; told to use it, it says so. With the module it
    # complains about what else was not said.
    words = ["qemu-img", "info", 'json:{"driver": "rbd"}']
    if shutil.which(words[0]) is None:
        return False
    return "Unknown driver" not in subprocess.run(words, capture_output=True, text=True).stderr


def _entry(name: str) -> dict[str, object]:
    """A user's part of a keyring."""
    caps = {f"caps {service}": f'"{cap}"' for service, cap in _ALLOWED[name].items()}
    return {"key": _new_key(), **caps}


def _new_key() -> str:
    """A cephx key: its type (1: AES), when it was made (s, ns), its length, and itself."""
    secret = os.urandom(16)
    head = struct.pack("<HIIH", 1, int(time.time()), 0, len(secret))
    return base64.b64encode(head + secret).decode()


def _ask(path: Path, question: str) -> Any:
    """Ask a daemon by its administration socket: no process, no monitor, a millisecond."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(json.dumps({"prefix": question}).encode() + b"\0")
        with client.makefile("rb") as answer:
            length = int.from_bytes(answer.read(4), "big")
            return json.loads(answer.read(length))
