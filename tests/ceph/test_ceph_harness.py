"""The cluster itself: what every other test with Ceph takes for granted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import libvirt
import pytest
from lxml import etree
from lxml.builder import E, ElementMaker

from tests.support.ceph import Ceph, RbdPool
from tests.support.guests import MicroGuest
from tests.support.loopback import listening
from tests.support.session import remove_dead_sessions
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full  # facts of Ceph and libvirt, which change with their versions

MIB = 1024**2

# What the header of an image costs at the most; 54 bytes were measured for a clone.
HEADER = 4096

RBD_OPTIONS = "http://libvirt.org/schemas/storagepool/rbd/1.0"
R = ElementMaker(namespace=RBD_OPTIONS, nsmap={"rbd": RBD_OPTIONS})

# How long a client seeks a monitor: what libvirt gives its pools. QEMU seeks for 300 s.
PATIENCE = 30


def xml(described: etree._Element) -> str:
    return etree.tostring(described, encoding="unicode")


def hosts(ceph: Ceph) -> list[etree._Element]:
    return [E.host(name=name, port=str(port)) for name, port in ceph.monitors]


def start_pool(
    connection: libvirt.virConnect, ceph: Ceph, access: RbdPool, patience: int = PATIENCE
) -> libvirt.virStoragePool:
    auth = E.auth(E.secret(uuid=access.secret), type="ceph", username=access.user)
    described = E.pool(
        E.name(access.name),
        E.source(*hosts(ceph), E.name(access.name), auth),
        R.config_opts(R.option(name="client_mount_timeout", value=str(patience))),
        type="rbd",
    )
    validate = libvirt.VIR_STORAGE_POOL_DEFINE_VALIDATE
    pool = connection.storagePoolDefineXML(xml(described), validate)
    pool.create()
    return pool


def boot(
    connection: libvirt.virConnect, ceph: Ceph, access: RbdPool, log: Path, *, image: str
) -> None:
    """A guest from an image of the pool; what stands in ceph.conf next to its log applies."""
    source = E.source(*hosts(ceph), protocol="rbd", name=f"{access.name}/{image}")
    if (conf := log.with_name("ceph.conf")).exists():
        source.append(E.config(file=str(conf)))
    disk = E.disk(
        E.driver(name="qemu", type="raw"),
        E.auth(E.secret(type="ceph", uuid=access.secret), username=access.user),
        source,
        E.target(dev="vda", bus="virtio"),
        type="network",
        device="disk",
    )
    described = E.domain(
        E.name(image),
        E.memory("16", unit="MiB"),
        E.os(E.type("hvm", arch="x86_64", machine="pc")),
        E.devices(disk, E.serial(E.log(file=str(log), append="on"), type="pty")),
        type="qemu",
    )
    connection.createXML(xml(described), libvirt.VIR_DOMAIN_START_VALIDATE)


def wait_until_ready(log: Path, marker: str) -> None:
    wait_for(lambda: log.exists() and "READY" in log.read_text(errors="replace"), 30)
    assert marker in log.read_text(errors="replace")


def import_image(ceph: Ceph, access: RbdPool, source: Path, name: str) -> None:
    ceph.rbd("import", "--no-progress", str(source), f"{access.name}/{name}")


def import_template(ceph: Ceph, access: RbdPool, source: Path) -> str:
    """The snapshot to clone from."""
    import_image(ceph, access, source, "template")
    snapshot = f"{access.name}/template@base"
    ceph.rbd("snap", "create", "--no-progress", snapshot)
    ceph.rbd("snap", "protect", snapshot)
    return snapshot


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_cluster_listens_on_the_loopback_only(ceph: Ceph) -> None:
    ours = listening(ceph.pids)
    assert {f"{host}:{port}" for host, port in ceph.monitors} < ours
    assert {address.rpartition(":")[0] for address in ours} == {"127.0.0.1"}


def test_the_cluster_writes_nowhere_else_and_its_keys_are_root_s(ceph: Ceph) -> None:
    places = filter(os.path.exists, ("/etc/ceph", "/var/lib/ceph", "/var/log/ceph", "/run/ceph"))
    newer = ["find", *places, "-newer", str(ceph.directory / "monmap")]
    assert subprocess.run(newer, capture_output=True, text=True).stdout == ""
    keys = [path for path in ceph.directory.rglob("*") if path.name == "keyring"]
    assert [oct(path.stat().st_mode & 0o777) for path in keys] == ["0o600"] * len(keys) != []
    assert oct(ceph.conf.stat().st_mode & 0o777) == "0o644"  # for QEMU's user, too


def test_libvirt_lists_the_images_of_a_pool(
    connection: libvirt.virConnect, ceph: Ceph, rbd_pool: RbdPool, micro_guest: MicroGuest
) -> None:
    pool = start_pool(connection, ceph, rbd_pool)
    _, capacity, *_ = pool.info()
    assert capacity > 0
    assert pool.listVolumes() == []
    import_image(ceph, rbd_pool, micro_guest.path, "guest")
    assert ceph.rbd("ls", rbd_pool.name, "--format", "json").strip() == '["guest"]'
    pool.refresh()
    assert pool.listVolumes() == ["guest"]
    assert pool.storageVolLookupByName("guest").info()[1] == MIB


def test_a_user_may_use_no_pool_of_others(
    connection: libvirt.virConnect, ceph: Ceph, rbd_pool: RbdPool
) -> None:
    ceph.make_pool("others")
    try:
        stranger = RbdPool(name="others", user=rbd_pool.user, secret=rbd_pool.secret)
        with pytest.raises(libvirt.libvirtError, match="Unable to list RBD images"):
            start_pool(connection, ceph, stranger)
    finally:
        ceph.remove_pool("others")


def test_a_guest_boots_from_an_image(
    connection: libvirt.virConnect,
    ceph: Ceph,
    rbd_pool: RbdPool,
    workdir: Path,
    micro_guest: MicroGuest,
) -> None:
    log = workdir / "console.log"
    import_image(ceph, rbd_pool, micro_guest.path, "guest")
    boot(connection, ceph, rbd_pool, log, image="guest")
    wait_until_ready(log, micro_guest.marker)


def test_a_guest_boots_from_a_clone(
    connection: libvirt.virConnect,
    ceph: Ceph,
    rbd_pool: RbdPool,
    workdir: Path,
    micro_guest: MicroGuest,
) -> None:
    log = workdir / "console.log"
    base = import_template(ceph, rbd_pool, micro_guest.path)
    ceph.rbd("clone", base, f"{rbd_pool.name}/clone")
    boot(connection, ceph, rbd_pool, log, image="clone")
    wait_until_ready(log, micro_guest.marker)


def test_a_clone_adds_no_image_data_until_it_is_flattened(
    ceph: Ceph, rbd_pool: RbdPool, workdir: Path
) -> None:
    pool, size = rbd_pool.name, 8 * MIB  # two objects of the usual size, without a hole
    (workdir / "full").write_bytes(os.urandom(size))
    began = ceph.bytes_written()
    base = import_template(ceph, rbd_pool, workdir / "full")
    imported = ceph.bytes_written()
    assert size <= imported - began < size + HEADER
    assert ceph.data_objects(pool) == 2
    ceph.rbd("clone", base, f"{pool}/clone")
    cloned = ceph.bytes_written()
    assert 0 < cloned - imported < HEADER
    assert ceph.data_objects(pool) == 2
    ceph.rbd("flatten", "--no-progress", f"{pool}/clone")
    assert size <= ceph.bytes_written() - cloned < size + HEADER
    assert ceph.data_objects(pool) == 4


def test_an_unreachable_cluster_is_an_error_in_time_and_comes_back_as_it_was(
    connection: libvirt.virConnect,
    ceph: Ceph,
    rbd_pool: RbdPool,
    workdir: Path,
    micro_guest: MicroGuest,
) -> None:
    log, patience = workdir / "console.log", 3
    (workdir / "ceph.conf").write_text(f"[global]\nclient mount timeout = {patience}\n")
    import_image(ceph, rbd_pool, micro_guest.path, "guest")
    pool = start_pool(connection, ceph, rbd_pool, patience)
    ceph.stop()
    began = time.monotonic()
    with pytest.raises(libvirt.libvirtError, match="failed to connect to the RADOS monitor"):
        pool.refresh()
    with pytest.raises(libvirt.libvirtError, match="error connecting: Connection timed out"):
        boot(connection, ceph, rbd_pool, log, image="guest")
    assert 2 * patience <= time.monotonic() - began < 2 * patience + 10
    assert not pool.isActive()  # as after any refresh that failed
    ceph.start()
    pool.create()
    assert pool.listVolumes() == ["guest"]
    boot(connection, ceph, rbd_pool, log, image="guest")
    wait_until_ready(log, micro_guest.marker)


def test_a_second_cluster_runs_beside_the_first_and_leaves_no_process(
    ceph: Ceph, workdir: Path
) -> None:
    with Ceph(workdir / "ceph") as second:
        assert second.monitors != ceph.monitors
        pids = second.pids
        assert all(map(exists, pids))
    assert not any(map(exists, pids))


KILLED_SESSION = """
import os, pathlib, signal, sys
from tests.support.ceph import Ceph
from tests.support.session import session_directory

with session_directory(pathlib.Path(sys.argv[1])) as path:
    with Ceph(path / "ceph") as ceph:
        print(path, *ceph.pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("ceph")  # which skips where there can be none
def test_what_a_killed_session_left_is_gone_after_the_next_one_began(workdir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_SESSION, str(workdir)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    path, *numbers = done.stdout.split()
    pids = list(map(int, numbers))
    assert len(pids) == 3
    assert all(map(exists, pids))
    remove_dead_sessions(workdir)
    wait_for(lambda: not any(map(exists, pids)), 5)
    assert not Path(path).exists()
