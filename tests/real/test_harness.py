"""The harness itself: what every other real test takes for granted."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import libvirt
import pytest
from lxml import etree

from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopfs import MIB, FilesystemKind, MakeFilesystem, loop_filesystem
from tests.support.session import remove_dead_sessions, session_directory
from tests.support.started import counting
from tests.support.waiting import wait_for

QEMU_USER = "libvirt-qemu"
ALL_KINDS: tuple[FilesystemKind, ...] = ("ext4", "xfs", "btrfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A domain with a volume disk, and the file that keeps its console."""

    domain: libvirt.virDomain
    disk: Path
    log: Path

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text(errors="replace")

    @property
    def disk_owner(self) -> str:
        return pwd.getpwuid(self.disk.stat().st_uid).pw_name


def element(tag: str, *content: etree._Element | str, **attributes: str) -> etree._Element:
    made = etree.Element(tag, attributes)
    for part in content:
        if isinstance(part, str):
            made.text = part
        else:
            made.append(part)
    return made


def xml(described: etree._Element) -> str:
    return etree.tostring(described, encoding="unicode")


def make_pool(connection: libvirt.virConnect, name: str, path: Path) -> libvirt.virStoragePool:
    path.mkdir(exist_ok=True)
    target = element("target", element("path", str(path)))
    described = element("pool", element("name", name), target, type="dir")
    pool = connection.storagePoolDefineXML(xml(described))
    pool.create()
    return pool


def boot(
    connection: libvirt.virConnect, guest: MicroGuest, directory: Path, name: str = "micro"
) -> Boot:
    """Boot a copy of the guest from the pool `name` in `directory`."""
    directory.mkdir(exist_ok=True)
    disk, log = directory / "pool" / "disk", directory / "console.log"
    pool = make_pool(connection, name, disk.parent)
    shutil.copyfile(guest.path, disk)
    pool.refresh()
    domain = connection.defineXML(xml(domain_element(name, log, pool=name)))
    domain.create()
    return Boot(domain=domain, disk=disk, log=log)


def domain_element(name: str, log: Path, *, pool: str | None = None) -> etree._Element:
    return element(
        "domain",
        element("name", name),
        element("memory", "16", unit="MiB"),
        element("os", element("type", "hvm", arch="x86_64", machine="pc")),
        element("features", element("acpi")),  # the guest watches the power button
        element(
            "devices",
            *([disk_element(pool)] if pool else []),
            element("serial", element("log", file=str(log), append="on"), type="pty"),
            element("controller", type="usb", model="none"),
            element("memballoon", model="none"),
        ),
        type="qemu",
    )


def disk_element(pool: str) -> etree._Element:
    return element(
        "disk",
        element("driver", name="qemu", type="raw"),
        element("source", pool=pool, volume="disk"),
        element("backingStore"),
        element("target", dev="vda", bus="virtio"),
        type="volume",
        device="disk",
    )


def test_the_private_libvirtd_answers_as_a_host_of_its_own(
    libvirtd: PrivateLibvirtd, connection: libvirt.virConnect
) -> None:
    assert connection.getHostname() == libvirtd.name != socket.gethostname()
    assert libvirtd.run("hostname").stdout.strip() == libvirtd.name
    assert connection.listAllDomains() == []
    assert connection.listAllStoragePools() == []
    os.kill(libvirtd.pid, 0)


def test_a_guest_boots_from_a_volume_and_is_ready_within_seconds(
    libvirtd: PrivateLibvirtd,
    connection: libvirt.virConnect,
    workdir: Path,
    micro_guest: MicroGuest,
) -> None:
    boot(connection, micro_guest, workdir / "first", "first")  # libvirt has probed QEMU now
    began = time.monotonic()
    second = boot(connection, micro_guest, workdir / "second", "second")
    # 0.3 s as a rule; 48 s when libvirt probes QEMU again for every start.
    assert time.monotonic() - began < 5
    wait_for(lambda: second.says("READY"), 10)
    assert second.says(micro_guest.marker)


def test_guests_run_as_the_user_of_qemu_and_own_their_disk_meanwhile(
    connection: libvirt.virConnect, workdir: Path, micro_guest: MicroGuest
) -> None:
    booted = boot(connection, micro_guest, workdir)
    assert booted.disk_owner == QEMU_USER
    booted.domain.destroy()
    assert booted.disk_owner == "root"


def test_a_killed_libvirtd_finds_its_guest_again(
    libvirtd: PrivateLibvirtd, workdir: Path, micro_guest: MicroGuest
) -> None:
    with libvirtd.connect() as connection:
        booted = boot(connection, micro_guest, workdir)
        number = booted.domain.ID()
    wait_for(lambda: booted.says("READY"), 10)
    libvirtd.kill()
    assert not libvirtd.is_running
    wait_for(lambda: booted.says("TICK 0002"), 10)
    libvirtd.start()
    with libvirtd.connect() as connection:
        domain = connection.lookupByName("micro")
        assert domain.isActive()
        assert domain.ID() == number
    assert booted.log.read_text().count("READY") == 1


def test_a_restarted_libvirtd_is_another_process_that_keeps_its_identity(
    libvirtd: PrivateLibvirtd, workdir: Path
) -> None:
    before = libvirtd.pid
    with libvirtd.connect() as connection:
        make_pool(connection, "kept", workdir / "kept")
        identity = etree.fromstring(connection.getCapabilities()).findtext("host/uuid")
    libvirtd.restart()
    assert libvirtd.pid != before
    with libvirtd.connect() as connection:
        assert connection.storagePoolLookupByName("kept").isPersistent()
        assert etree.fromstring(connection.getCapabilities()).findtext("host/uuid") == identity


def test_clearing_removes_what_a_test_left_even_of_a_killed_daemon(
    libvirtd: PrivateLibvirtd, workdir: Path, micro_guest: MicroGuest
) -> None:
    with libvirtd.connect() as connection:
        booted = boot(connection, micro_guest, workdir)
        connection.createXML(xml(domain_element("transient", workdir / "transient.log")))
    libvirtd.kill()
    libvirtd.clear()
    with libvirtd.connect() as connection:
        assert connection.listAllDomains() == []
        assert connection.listAllStoragePools() == []
    assert booted.disk.exists()


def test_clearing_ends_the_qemu_img_that_a_killed_daemon_left(
    libvirtd: PrivateLibvirtd, workdir: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as silent, ThreadPoolExecutor() as threads:
        silent.bind(str(workdir / "silent"))
        silent.listen()
        endless = f"nbd+unix:///?socket={workdir}/silent"
        conversion = threads.submit(libvirtd.run, "qemu-img", "info", "-f", "raw", endless)
        accepted, _ = silent.accept()
        with accepted:
            libvirtd.kill()
            libvirtd.clear()
            with pytest.raises(RuntimeError, match="qemu-img"):
                conversion.result(5)


def test_the_libvirtd_of_the_machine_never_hears_of_it(
    connection: libvirt.virConnect, workdir: Path, micro_guest: MicroGuest
) -> None:
    name = f"pond-{uuid.uuid4()}"
    boot(connection, micro_guest, workdir, name)
    places = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
    assert [found for place in places for found in find_named(Path(place), name)] == []
    assert list(find_named(Path("/sys/fs/cgroup"), name)) == []
    assert name not in names_of_the_machine()
    assert not {place for place in places[1:] if f" {place} " in mount_table()}


def mount_table() -> str:
    return Path("/proc/self/mountinfo").read_text()


def find_named(place: Path, name: str) -> list[str]:
    # find, not rglob: others work on the machine, and directories may vanish under it.
    words = ["find", str(place), "-name", f"*{name}*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.split()


def names_of_the_machine() -> list[str]:
    if not Path("/run/libvirt/libvirt-sock-ro").exists():
        return []
    try:
        connection = libvirt.openReadOnly("qemu:///system")
    except libvirt.libvirtError:  # a socket that a dead daemon left
        return []
    with contextlib.closing(connection):
        domains, pools = connection.listAllDomains(), connection.listAllStoragePools()
        return [thing.name() for thing in (*domains, *pools)]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_filesystem_mounted_later_is_seen_by_the_running_libvirtd(
    libvirtd: PrivateLibvirtd,
    connection: libvirt.virConnect,
    make_filesystem: MakeFilesystem,
    kind: FilesystemKind,
) -> None:
    filesystem = make_filesystem(kind)
    (filesystem.path / "volume").write_bytes(bytes(MIB))
    seen = libvirtd.run("stat", "--file-system", "--format=%T", str(filesystem.path)).stdout
    assert seen.strip() in {kind, "ext2/ext3"}  # ext4 has the magic number of ext2
    pool = make_pool(connection, "seen", filesystem.path)
    assert "volume" in pool.listVolumes()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_filesystem_counts_the_bytes_that_reach_it(
    make_filesystem: MakeFilesystem, kind: FilesystemKind
) -> None:
    filesystem = make_filesystem(kind)
    before = filesystem.bytes_written()
    assert before < 4 * MIB  # whatever the device had written for others
    (filesystem.path / "data").write_bytes(os.urandom(8 * MIB))
    assert 8 * MIB <= filesystem.bytes_written() - before < 10 * MIB


def test_a_filesystem_leaves_no_mount_and_no_device(workdir: Path) -> None:
    with loop_filesystem("ext4", 16 * MIB, workdir / "gone") as filesystem:
        assert filesystem.path.is_mount()
    assert not filesystem.path.exists()
    assert list(workdir.iterdir()) == []
    backing = Path(f"/sys/block/{filesystem.device.name}/loop/backing_file")
    assert not backing.exists() or not backing.read_text().startswith(str(workdir))


def test_a_guest_on_a_filesystem_does_not_keep_it_from_being_unmounted(
    connection: libvirt.virConnect, make_filesystem: MakeFilesystem, micro_guest: MicroGuest
) -> None:
    # The guest is left running on purpose: the fixtures must end it before they unmount.
    boot(connection, micro_guest, make_filesystem("ext4").path / "guest")


def test_the_programs_that_a_host_starts_are_counted(
    libvirtd: PrivateLibvirtd, connection: libvirt.virConnect, workdir: Path
) -> None:
    pool = make_pool(connection, "counted", workdir / "counted")
    target = element("target", element("format", type="qcow2"))
    capacity = element("capacity", "1", unit="MiB")
    with counting(libvirtd) as counter:
        subprocess.run(["true"], check=True)  # of ours
        assert counter.count == 0
        pool.createXML(xml(element("volume", element("name", "a"), capacity, target)))
        wait_for(lambda: counter.count, 5)  # libvirt has qemu-img make it


def test_a_guest_lets_a_disk_go_that_the_host_wants_back(
    connection: libvirt.virConnect, workdir: Path, micro_guest: MicroGuest
) -> None:
    made = boot(connection, micro_guest, workdir / "guest")
    wait_for(lambda: made.says("READY"), 30)
    spare = workdir / "spare"
    spare.write_bytes(bytes(MIB))
    disk = xml(
        element(
            "disk",
            element("driver", name="qemu", type="raw"),
            element("source", file=str(spare)),
            element("target", dev="vdb", bus="virtio"),
            type="file",
            device="disk",
        )
    )
    made.domain.attachDevice(disk)
    assert "vdb" in made.domain.XMLDesc()
    made.domain.detachDevice(disk)
    wait_for(lambda: "vdb" not in made.domain.XMLDesc(), 10)
    wait_for(lambda: made.says("TICK 0005"), 30)


def test_two_hosts_with_networks_of_their_own_reach_each_other(workdir: Path) -> None:
    # Names of our own, so that two sessions do not meet on one bridge.
    bridge, net = f"millpond{os.getpid() % 10**7}", f"10.213.{os.getpid() % 256}"
    with (
        PrivateLibvirtd(workdir / "a", name="a", network=(bridge, f"{net}.2/24")) as a,
        PrivateLibvirtd(workdir / "b", name="b", network=(bridge, f"{net}.3/24")) as b,
    ):
        assert a.run("virsh", "--connect", b.tcp_uri, "hostname").stdout.strip() == "b"
        with contextlib.closing(libvirt.open(a.tcp_uri)) as connection:
            assert connection.getHostname() == "a"
    assert not Path(f"/sys/class/net/{bridge}").exists()


KILLED_SESSION = """
import os, pathlib, signal, sys
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.loopfs import loop_filesystem
from tests.support.session import session_directory
from tests.real.test_harness import domain_element, xml

with session_directory(pathlib.Path(sys.argv[1])) as path:
    with PrivateLibvirtd(path / "libvirtd") as daemon:
        with loop_filesystem("ext4", 16 << 20, path / "mounted"):
            with daemon.connect() as connection:
                connection.createXML(xml(domain_element("left", path / "console.log")))
            print(path, daemon.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_session_left_is_gone_after_the_next_one_began(workdir: Path) -> None:
    path, pid = run_a_session_that_is_killed(workdir)
    guest = int((path / "libvirtd/run/libvirt/qemu/left.pid").read_text())
    os.kill(pid, 0)
    os.kill(guest, 0)
    assert (path / "mounted").is_mount()
    remove_dead_sessions(workdir)
    wait_for(lambda: not any(Path(f"/proc/{left}").exists() for left in (pid, guest)), 5)
    assert not path.exists()
    assert str(path) not in mount_table()
    loops = subprocess.run(["losetup", "--all"], capture_output=True, text=True).stdout
    assert str(path) not in loops


def run_a_session_that_is_killed(parent: Path) -> tuple[Path, int]:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_SESSION, str(parent)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    path, pid = done.stdout.split()
    return Path(path), int(pid)


def test_the_directory_of_a_living_session_is_left_alone(workdir: Path) -> None:
    with session_directory(workdir) as living:
        remove_dead_sessions(workdir)
        assert living.is_dir()
    assert not living.exists()
