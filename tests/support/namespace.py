"""One pretended host: mount, host name and, if asked, network namespaces of its own.

Inside, the places where libvirt keeps anything belong to a directory that the caller gives;
everything else is the machine's, by the same paths. What the machine mounts later is seen as far
as its mounts are shared (session.py makes the session's directory so); what is mounted inside
never comes out.
"""

import ipaddress
import os
import signal
import stat
import struct
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.processes import end_processes

_REPOSITORY = Path(__file__).parents[2].resolve()

# Where libvirt keeps state → where it lies in the host's directory.
_PRIVATE = {
    "/run": "run",
    "/etc/libvirt": "etc",
    "/var/lib/libvirt": "lib",
    "/var/cache/libvirt": "cache",
    "/var/log/libvirt": "log",
}

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun", "loop*")

# tty's group on Debian, which devpts wants as a number.
_TTY_GROUP = 5

_BOOT_TIME = 2  # of utmp.h


@cache
def _booted() -> bytes:
    """When the machine was booted, for utmp; once for all, because the kernel's answer follows its
    clock, which may be adjusted. Without it libvirt subtracts /proc/uptime from the
    clock and rounds, and two daemons that differ by a second take each other's marks on the files
    of guests for those of another boot. Two machines always differ: there libvirt leaves the files
    of a guest that moves alone where it knows the file system to be shared, as it does not know
    ours (docs/migration.md)."""
    lines = Path("/proc/stat").read_text().splitlines()
    seconds = next(int(each.split()[1]) for each in lines if each.startswith("btime "))
    entry = (_BOOT_TIME, 0, b"~", b"~~", b"reboot", b"", 0, 0, 0, seconds, 0, b"", b"")
    return struct.pack("hxxi32s4s32s256shhiii16s20s", *entry)


class HostNamespaces:
    """Lives as long as a process does that holds it, or any that was started inside.

    `network` is a bridge of the machine and this host's address on it,
    ("millpond0", "10.77.0.2/24"). A missing bridge is made, with the network's first address.
    """

    def __init__(self, directory: Path, *, name: str, network: tuple[str, str] | None) -> None:
        self._directory = directory
        self._name = name
        self._network = network
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def is_open(self) -> bool:
        return self._holder is not None

    def open(self) -> None:
        self._make_directories()
        self._holder = self._hold()
        self._mount_private_sys()
        self._mount_private_dev()
        for place, own in _PRIVATE.items():
            self._keep_repository(place, self._directory / own)
            self.run("mount", "--rbind", str(self._directory / own), place)
        self.run("mount", "--bind", str(self._directory / "hosts"), "/etc/hosts")
        self.run("hostname", self._name)
        if self._network:
            self._connect(*self._network)

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` inside; it becomes them and keeps its process id."""
        if self._holder is None:
            raise RuntimeError(f"the host {self._name} is not open")
        return ["nsenter", f"--target={self._holder.pid}", *self._kinds, "--", *words]

    def run(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return _run(*self.command(*words), seconds=seconds)

    def holds(self, pid: int) -> bool:
        """Whether a process of the machine lives in here: then its /run is ours."""
        try:
            return os.path.samefile(f"/proc/{pid}/root/run", self._directory / "run")
        except OSError:
            return False

    def clear(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End every process that was started in here; the host stays."""
        holder = self._holder.pid if self._holder else None
        end_processes(lambda pid: pid != holder and self.holds(pid), first)

    def close(self) -> None:
        """End every process in here; the mounts go with the last one."""
        if self._holder is None:
            return
        end_processes(self.holds)
        self._holder.communicate()
        if self._network:
            _remove_link(_link_name(self._holder.pid))
            _remove_bridge_if_unused(self._network[0])
        self._holder = None

    @property
    def _kinds(self) -> list[str]:
        return ["--mount", "--uts", *(["--net"] if self._network else [])]

    def _make_directories(self) -> None:
        for own in (*_PRIVATE.values(), "."):
            (self._directory / own).mkdir(parents=True, exist_ok=True)
            (self._directory / own).chmod(0o755)
        # libvirt asks for the address of the host's name, which would wait for a name server.
        address = self._network[1].partition("/")[0] if self._network else "127.0.1.1"
        hosts = Path("/etc/hosts").read_text()
        (self._directory / "hosts").write_text(f"{hosts}\n{address} {self._name}\n")
        (self._directory / "run/utmp").write_bytes(_booted())

    def _hold(self) -> subprocess.Popen[bytes]:
        # cat answers as soon as the namespaces are made, and ends when our end of the pipe does.
        holder = subprocess.Popen(
            ["unshare", *self._kinds, "--propagation", "slave", "--", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        if not holder.stdout.readline():
            raise RuntimeError(f"unshare ended with {holder.wait()}")
        return holder

    def _keep_repository(self, place: str, own: Path) -> None:
        # A clone may lie anywhere, also where we are about to mount something of our own.
        if _REPOSITORY.is_relative_to(place):
            kept = own / _REPOSITORY.relative_to(place)
            kept.mkdir(parents=True, exist_ok=True)
            self.run("mount", "--bind", str(_REPOSITORY), str(kept))

    def _mount_private_sys(self) -> None:
        # A fresh /sys has no control groups. libvirt names a guest's group after the guest's
        # number and name, so a guest in here and one of the machine's own libvirtd could share
        # one, and destroying the first would kill both. It also shows the right network devices.
        self.run("umount", "--recursive", "--lazy", "/sys")
        self.run("mount", "-t", "sysfs", "sysfs", "/sys")

    def _mount_private_dev(self) -> None:
        # Without /dev/kvm: one that QEMU's user cannot open makes libvirt probe QEMU again for
        # every start (48 s), and one that it can open would make the tests' capabilities depend
        # on the machine. All guests of the tests run under TCG. A devpts of its own because the
        # machine's may not let QEMU's user open a terminal.
        self.run("mount", "-t", "tmpfs", "-o", "mode=0755", "millpond-dev", "/dev")
        for node in _device_nodes():
            self._make_node(node)
        dev = self._inside("/dev")
        (dev / "pts").mkdir()
        (dev / "shm").mkdir()
        (dev / "ptmx").symlink_to("pts/ptmx")
        (dev / "fd").symlink_to("/proc/self/fd")
        options = f"newinstance,ptmxmode=0666,mode=0620,gid={_TTY_GROUP}"
        self.run("mount", "-t", "devpts", "-o", options, "devpts", "/dev/pts")
        self.run("mount", "-t", "tmpfs", "-o", "mode=1777", "millpond-shm", "/dev/shm")

    def _make_node(self, original: Path) -> None:
        seen = original.stat()
        copy = self._inside(str(original))
        copy.parent.mkdir(exist_ok=True)
        os.mknod(copy, seen.st_mode, seen.st_rdev)
        copy.chmod(stat.S_IMODE(seen.st_mode))
        os.chown(copy, seen.st_uid, seen.st_gid)

    def _inside(self, path: str) -> Path:
        """How a path of the inside is reached from here."""
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def _connect(self, bridge: str, address: str) -> None:
        assert self._holder is not None
        _make_bridge(bridge, ipaddress.ip_interface(address).network)
        link, pid = _link_name(self._holder.pid), str(self._holder.pid)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _ip("link", "set", link, "master", bridge, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", address, "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")


def _device_nodes() -> Iterator[Path]:
    for pattern in _DEVICES:
        for node in Path("/dev").glob(pattern):
            if node.is_char_device() or node.is_block_device():
                yield node


def _run(*words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr.strip()}")
    return done


def _ip(*words: str) -> None:
    _run("ip", *words)


def _link_name(pid: int) -> str:
    return f"pond{pid}"


def _make_bridge(bridge: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
    if Path(f"/sys/class/net/{bridge}").exists():
        return
    first = f"{next(network.hosts())}/{network.prefixlen}"
    _ip("link", "add", bridge, "type", "bridge")
    _ip("address", "add", first, "dev", bridge)
    _ip("link", "set", bridge, "up")


def _remove_link(name: str) -> None:
    # The kernel takes it away with the namespace, but in its own time.
    subprocess.run(["ip", "link", "delete", name], capture_output=True)


def _remove_bridge_if_unused(bridge: str) -> None:
    # By its name, not by who made it: so one that a killed session left goes too, and a bridge
    # of the machine's own stays.
    ports = Path(f"/sys/class/net/{bridge}/brif")
    if bridge.startswith("millpond") and ports.exists() and not list(ports.iterdir()):
        _remove_link(bridge)
