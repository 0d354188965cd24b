"""libvirt's pools: the contract, and what libvirt does that nobody expects."""

import os
import subprocess
import threading
import time
from contextlib import suppress

import libvirt
import pytest

from millpond.errors import (
    HostUnreachable,
    MillpondError,
    NoSpace,
    PoolElsewhere,
    PoolInactive,
    PoolNotFound,
    PoolOfAnotherType,
    PoolUnusable,
    TooOld,
)
from millpond.libvirt.pool import Pool
from millpond.libvirt.pools import PoolPlan, Pools, PoolWanted, ensure_pool, start_pool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.sizes import GiB, MiB
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks
from tests.contract.pool import PoolContract, spec
from tests.support.waiting import wait_for

NAME = "nova-disks-pool"


@pytest.fixture
def host(libvirtd):
    opened = Libvirtd(libvirtd.uri)
    yield opened
    opened.close()


@pytest.fixture
def locks(workdir):
    return Locks(workdir / "locks")


@pytest.fixture
def wanted(workdir):
    return PoolWanted(name=NAME, path=str(workdir / "disks"))


@pytest.fixture
def pool(host, wanted, locks):
    return ensure_pool(host, wanted, locks)


class TestLibvirtPool(PoolContract):
    @pytest.fixture
    def pool(self, pool) -> Pool:
        return pool


# The pools that a host needs (B27)


def test_a_missing_pool_is_made_persistent_active_and_autostarted(pool, wanted, connection):
    made = connection.storagePoolLookupByName(NAME)
    assert (made.isPersistent(), made.isActive(), made.autostart()) == (1, 1, 1)
    assert os.stat(wanted.path).st_mode & 0o777 == 0o711


def test_making_it_again_changes_nothing(host, pool, wanted, locks, connection):
    before = connection.storagePoolLookupByName(NAME).UUIDString()
    ensure_pool(host, wanted, locks)
    assert connection.storagePoolLookupByName(NAME).UUIDString() == before


def test_many_who_need_it_at_once_make_one(host, wanted, locks, connection):
    errors = []

    def make():
        try:
            ensure_pool(Libvirtd(host.uri), wanted, locks)
        except MillpondError as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert len(connection.listAllStoragePools(0)) == 1


def test_an_inactive_pool_is_refused_and_can_be_started(host, pool, wanted, locks, connection):
    connection.storagePoolLookupByName(NAME).destroy()
    with pytest.raises(PoolInactive, match="not active"):
        ensure_pool(host, wanted, locks)
    start_pool(host, NAME)
    ensure_pool(host, wanted, locks)


def test_a_pool_elsewhere_is_refused(host, pool, wanted, locks, workdir):
    other = PoolWanted(name=NAME, path=str(workdir / "other"))
    with pytest.raises(PoolElsewhere, match=rf"at {wanted.path}, not at {other.path}"):
        ensure_pool(host, other, locks)
    assert not (workdir / "other").exists()


def test_a_pool_of_another_type_is_refused(host, wanted, locks, connection):
    connection.storagePoolDefineXML(
        f"<pool type='netfs'><name>{NAME}</name><source><host name='h'/><dir path='/e'/></source>"
        f"<target><path>{wanted.path}</path></target></pool>"
    )
    with pytest.raises(PoolOfAnotherType, match="'netfs', not 'dir'"):
        ensure_pool(host, wanted, locks)


def test_a_directory_that_cannot_be_made_leaves_no_pool(host, locks, workdir, connection):
    (workdir / "file").write_text("")
    bad = PoolWanted(name=NAME, path=str(workdir / "file" / "disks"))
    with pytest.raises(MillpondError):
        ensure_pool(host, bad, locks)
    assert connection.listAllStoragePools(0) == []


def test_a_pool_per_type_of_disk(host, locks, workdir):
    """B17"""
    base = PoolWanted(name="nova-base-images-pool", path=str(workdir / "_base"))
    disks = PoolWanted(name=NAME, path=str(workdir / "disks"))
    fast = PoolWanted(name="fast", path=str(workdir / "fast"))
    eph = PoolWanted(name="eph", path=str(workdir / "eph"))
    plan = PoolPlan(base=base, disks=disks, by_role={"disk.eph*": eph, "disk.*": fast})
    pools = Pools(host, plan, locks)
    roles = ("disk", "disk.swap", "disk.eph0")
    assert [pools.for_disk(Backend.QCOW2, each).name for each in roles] == [NAME, "fast", "eph"]
    with pytest.raises(PoolNotFound, match="'gone'"):
        pools.ensure("gone")


# What libvirt does


def test_a_raw_volume_whose_bytes_look_like_qcow2_is_never_believed(pool, workdir):
    """trap 2: after a refresh libvirt reports what a guest wrote. It is shown, not obeyed: what
    is copied from a disk is decided by its record, whose format the caller states."""
    secret = workdir / "secret"
    secret.write_bytes(b"the content of a file of the host".ljust(MiB, b"!"))
    header = workdir / "header.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, header],
        check=True,
    )
    volume = pool.create(spec("disk", format=DiskFormat.RAW, capacity=4 * MiB))
    with open(volume.path, "r+b") as file:
        file.write(header.read_bytes())
    pool.refresh()
    assert pool.get("disk").reported_format == "qcow2"  # the trap is there
    assert not hasattr(pool.get("disk"), "format")


def test_volumes_are_sparse_and_of_todays_qcow2(pool):
    """trap 7"""
    qcow2 = pool.create(spec("a", format=DiskFormat.QCOW2, capacity=64 * MiB))
    with open(qcow2.path, "rb") as file:
        assert file.read(8) == b"QFI\xfb\x00\x00\x00\x03"
    raw = pool.create(spec("b", format=DiskFormat.RAW, capacity=64 * MiB))
    assert os.stat(raw.path).st_blocks == 0


def build_slowly(pool, source):
    """A copy through libvirt that takes a while, in a thread."""
    copying = threading.Thread(
        target=lambda: suppress_errors(
            lambda: pool.create_from(
                spec("slow", format=DiskFormat.RAW, capacity=source.capacity), source
            )
        )
    )
    copying.start()
    wait_for(lambda: os.path.exists(f"{pool.path}/slow"), 30)
    return copying


def suppress_errors(call):
    with suppress(MillpondError):
        call()


@pytest.fixture
def slow_source(pool):
    """libvirt reads holes: 3 GiB of them take seconds (trap 8)."""
    return pool.create(spec("source", format=DiskFormat.RAW, capacity=3 * GiB))


def test_a_refresh_waits_while_a_volume_is_built(pool, slow_source, connection):
    """trap 9: libvirt refuses with code 1, and the pool stays active."""
    copying = build_slowly(pool, slow_source)
    with pytest.raises(libvirt.libvirtError, match="asynchronous jobs"):
        connection.storagePoolLookupByName(NAME).refresh()
    pool.refresh()
    copying.join()
    assert {each.name for each in pool.volumes()} == {"source", "slow"}


def test_a_pool_that_fell_is_started_again_once_its_cause_is_gone(pool, wanted, workdir):
    """trap 9: a refresh without the directory leaves the pool inactive."""
    pool.create(spec("a"))
    os.rename(wanted.path, workdir / "away")
    with pytest.raises(PoolUnusable, match="cannot open"):
        pool.refresh()
    os.rename(workdir / "away", wanted.path)
    assert [each.name for each in pool.volumes()] == ["a"]


def test_a_missing_directory_is_one_sentence(pool, wanted):
    os.rmdir(wanted.path)
    with pytest.raises(PoolUnusable, match=f"its directory {wanted.path} is missing"):
        pool.create(spec("a", format=DiskFormat.RAW))


def test_quick_calls_answer_while_slow_ones_run(host, pool, slow_source):
    """trap 10: five calls at a time a connection; slow ones have one of their own."""
    copies = [
        threading.Thread(
            target=suppress_errors,
            args=(
                lambda name=f"copy{number}": pool.create_from(
                    spec(name, format=DiskFormat.RAW, capacity=3 * GiB), slow_source
                ),
            ),
        )
        for number in range(8)
    ]
    for each in copies:
        each.start()
    wait_for(lambda: os.path.exists(f"{pool.path}/copy0"), 30)
    answered = []
    while any(each.is_alive() for each in copies) and len(answered) < 20:
        before = time.monotonic()
        pool.find("source")
        answered.append(time.monotonic() - before)
    for each in copies:
        each.join()
    assert len(answered) == 20, "the copies were too quick to tell"
    assert sorted(answered)[-2] < 1.0


def test_a_copy_cut_short_by_libvirtds_death_is_an_error(libvirtd, pool, slow_source):
    """trap 11: what stays looks complete; only our own record knows better."""
    failed = []

    def copy():
        try:
            pool.create_from(spec("partial", format=DiskFormat.RAW, capacity=3 * GiB), slow_source)
        except MillpondError as error:
            failed.append(error)

    copying = threading.Thread(target=copy)
    copying.start()
    wait_for(lambda: os.path.exists(f"{pool.path}/partial"), 30)
    libvirtd.kill()
    copying.join()
    assert len(failed) == 1
    assert "lost" in str(failed[0])
    libvirtd.start()
    assert wait_for(lambda: pool.find("partial"), 10)  # it looks like any other volume


def test_a_full_pool_is_one_sentence(host, locks, make_filesystem):
    small = make_filesystem("ext4", 64 * MiB)
    wanted = PoolWanted(name=NAME, path=str(small.path / "disks"))
    pool = ensure_pool(host, wanted, locks)
    source = pool.create(spec("source", format=DiskFormat.RAW, capacity=48 * MiB))
    with open(source.path, "r+b") as file:
        for _ in range(40):
            file.write(os.urandom(MiB))
    with pytest.raises(NoSpace, match=r"no space left in pool nova-disks-pool"):
        pool.create_from(spec("copy", format=DiskFormat.RAW, capacity=48 * MiB), source)
    assert pool.find("copy") is None


# The connection itself


def test_a_restarted_libvirtd_is_found_again(libvirtd, host, pool):
    pool.create(spec("a"))
    libvirtd.restart()
    time.sleep(1.1)  # a connection in use is not asked whether it lives
    assert pool.find("a")


def test_no_libvirtd_is_one_sentence(tmp_path):
    nobody = Libvirtd(f"qemu:///system?socket={tmp_path}/no-socket")
    with pytest.raises(HostUnreachable, match="cannot reach libvirt at qemu:///system"):
        nobody.versions()


def test_an_old_libvirt_or_qemu_is_one_sentence(libvirtd):
    with pytest.raises(TooOld, match=r"libvirt .* is too old: Millpond needs 99.0.0 or newer"):
        Libvirtd(libvirtd.uri, minimum_libvirt=(99, 0, 0)).versions()
    with pytest.raises(TooOld, match=r"QEMU .* is too old"):
        Libvirtd(libvirtd.uri, minimum_qemu=(99, 0, 0)).versions()


def test_a_file_that_libvirt_takes_for_a_ploop_directory_is_deleted_all_the_same(pool):
    """A guest can write such bytes; libvirt then fails with 'Not a directory'."""
    path = pool.create(spec("disk")).path
    with open(path, "r+b") as file:
        file.write(b"WithouFreSpacExt" + (2).to_bytes(4, "little"))
    pool.refresh()
    assert pool.get("disk").reported_format == "ploop"
    pool.delete("disk")
    assert pool.find("disk") is None
    assert not os.path.exists(path)


def test_a_directory_that_is_taken_as_a_pool_keeps_its_owner_and_mode(host, workdir):
    taken, made = workdir / "taken", workdir / "made" / "here"
    taken.mkdir()
    os.chown(taken, 1234, 4321)
    taken.chmod(0o2775)
    locks = Locks(workdir / "locks")
    ensure_pool(host, PoolWanted(name="taken", path=str(taken)), locks)
    ensure_pool(host, PoolWanted(name="made", path=str(made)), locks)
    found = taken.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 4321, 0o2775)
    assert made.stat().st_mode & 0o7777 == 0o711
