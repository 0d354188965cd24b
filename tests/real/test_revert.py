"""A resize that is confirmed, or reverted."""

import hashlib
import os
import re
from dataclasses import replace

import pytest

from tests.support.revertable import (
    MOMENTS,
    Revertable,
    check_killed,
    check_starting_points,
)

MiB = 1024**2


@pytest.fixture(params=["qcow2", "raw", "ploop"])
def backend(request):
    return request.param


@pytest.fixture
def pond(millpond, micro_guest, backend):
    return make(millpond, micro_guest, backend)


@pytest.fixture
def raw(millpond, micro_guest):
    return make(millpond, micro_guest, "raw")


def make(millpond, micro_guest, backend):
    millpond.configure(f"images_type_mapping = raw:{backend}")
    return in_directory(millpond).create(micro_guest)


def in_directory(millpond):
    def read(volume):
        return (millpond.disks / volume).read_bytes()

    def names():
        return [each.name for each in millpond.disks.iterdir()]

    return Revertable(millpond=millpond, read=read, names=names)


def test_each_revert_gives_the_bytes_of_its_own_starting_point(pond):
    check_starting_points(pond)


def test_what_cannot_be_is_refused_and_nothing_changes(raw):
    millpond, before = raw.millpond, raw.root()
    for status, said, *words in (
        (4, "no resize to confirm or revert", "--confirm"),
        (4, "no resize to confirm or revert", "--revert"),
        (2, "stand alone", "--confirm", "--revert"),
        (2, "stand alone", "--confirm", "--vcpus", "2"),
        (2, "no size was said", "--revertable"),
        (5, "a disk only grows", "--vcpus", "2", "--disk", "1M", "--revertable"),
        (2, "are too many", "--vcpus", "1000", "--revertable"),
    ):
        code, message = millpond.fails("server", "resize", "web", *words)
        assert (code, said in message) == (status, True), message
        assert raw.root() == before
        raw.volumes()
        assert raw.sizes() == (1, 32, 2)
        assert millpond.server("web").resized_from is None
    millpond.ok("server", "start", "web")
    code, message = millpond.fails("server", "resize", "web", *raw.larger, "--revertable")
    assert (code, "stop it first" in message) == (5, True)
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "resize", "web", *raw.larger, "--revertable")
    left = "Resized +from 1 vCPU, 32 MiB memory, and neither confirmed nor reverted"
    assert re.search(left, millpond.ok("server", "show", "web"))
    for words in (
        ("resize", "web", "--vcpus", "3", "--revertable"),
        ("rebuild", "web"),
        ("rescue", "web"),
        ("snapshot", "web", "copy"),
    ):
        code, message = millpond.fails("server", *words)
        assert (code, "neither confirmed nor reverted" in message) == (4, True), message
    millpond.ok("server", "start", "web")
    code, message = millpond.fails("server", "resize", "web", "--revert")
    assert (code, "stop it first" in message) == (5, True)
    assert millpond.json("server", "resize", "web", "--confirm")["state"] == "running"
    assert "Resized" not in millpond.ok("server", "show", "web")


@pytest.mark.parametrize("kind", ["xfs", pytest.param("btrfs", marks=pytest.mark.full)])
def test_what_is_kept_shares_its_bytes(millpond, micro_guest, make_filesystem, kind):
    """Where the file system has reflinks: 64 MiB of content are written once."""
    place = make_filesystem(kind, 1024 * MiB)
    pool = place.path / "disks"
    millpond.configure(f"images_type = raw\ndisks_pool_path = {pool}")
    server = replace(in_directory(millpond), size=64).create(micro_guest)
    volume = pool / millpond.server("web").get_disk().volume
    with volume.open("r+b") as file:
        file.seek(MiB)
        file.write(os.urandom(63 * MiB))
    start = hashlib.sha256(volume.read_bytes()).digest()
    for _ in range(2):
        written = place.bytes_written()
        millpond.ok("server", "resize", "web", "--disk", "80M", "--revertable")
        assert place.bytes_written() - written < 16 * MiB
        server.boot()
        millpond.ok("server", "resize", "web", "--revert")
        root_now = pool / millpond.server("web").get_disk().volume
        assert hashlib.sha256(root_now.read_bytes()).digest() == start


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_killed_it_has_one_disk_or_the_other(raw, verb, step, moment):
    check_killed(raw, verb, step, moment)


def test_what_is_kept_is_claimed(multi_host, micro_guest):
    """On hosts whose files cannot be opened here: what libvirt cannot copy is refused."""
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    multi_host.ok("server", "create", "overlay", *words)
    before = multi_host.deployment().server("overlay")
    code, message = multi_host.fails("server", "resize", "overlay", "--disk", "2G", "--revertable")
    assert (code, "run this on the host itself" in message) == (5, True), message
    assert multi_host.deployment().server("overlay") == before
    multi_host.configure(rest="images_type = raw")
    made = multi_host.json("server", "create", "web", *words, "--disk", "1G")

    def held():
        placed = multi_host.deployment().scheduler.placement.allocations.of(made["id"]).held
        return sum(each.get("DISK_GB", 0) for each in placed.values())

    multi_host.ok("server", "resize", "web", "--disk", "2G", "--revertable")
    assert held() == 3
    multi_host.ok("server", "resize", "web", "--revert")
    assert held() == 1
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")
