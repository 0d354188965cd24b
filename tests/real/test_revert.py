"""A resize that is confirmed, or reverted."""

import hashlib
import os
import re

import pytest

from millpond.records.journal import StepMoment
from tests.support.killer import kill_at
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

MiB = 1024**2
TELLING = (
    ("resize save", "copy", "end"),
    ("resize confirm", "release", "begin"),
    ("resize revert", "domain", "end"),
    ("resize revert", "remove", "end"),
)
MOMENTS = [
    pytest.param(
        verb, step, moment, marks=() if (verb, step, moment) in TELLING else pytest.mark.full
    )
    for verb in ("resize save", "resize confirm", "resize revert")
    for step in steps_of(verb)
    for moment in StepMoment
]
LARGER = ("--vcpus", "2", "--memory", "48M", "--disk", "4M")


@pytest.fixture(params=["qcow2", "raw", "ploop"])
def backend(request):
    return request.param


@pytest.fixture
def pond(millpond, micro_guest, backend):
    """A server that has booted once, and is off."""
    millpond.configure(f"images_type_mapping = raw:{backend}")
    return make(millpond, micro_guest)


@pytest.fixture
def raw(millpond, micro_guest):
    millpond.configure("images_type_mapping = raw:raw")
    return make(millpond, micro_guest)


def make(millpond, micro_guest, *disk):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    made = millpond.json("server", "create", "web", *words, *(disk or ("--disk", "2M")))
    millpond.wait_for_console(made["id"], "BOOTS 0001")
    millpond.ok("server", "stop", "web", "--force")
    return millpond


def boot(millpond):
    """How often it has, by its own disk, to which it writes that."""
    id = millpond.server("web").id
    before = millpond.console(id).count("READY")
    millpond.ok("server", "start", "web")
    wait_for(lambda: millpond.console(id).count("READY") > before, 30)
    millpond.ok("server", "stop", "web", "--force")
    return int(re.findall(r"BOOTS (\d{4})", millpond.console(id))[-1])


def root(millpond):
    """Its bytes."""
    volume = millpond.server("web").get_disk().volume
    return hashlib.sha256((millpond.disks / volume).read_bytes()).hexdigest()


def volumes(millpond):
    found = sorted(each.name for each in millpond.disks.iterdir())
    assert found == sorted(each.volume for each in millpond.server("web").disks)
    return found


def sizes(millpond):
    server = millpond.server("web")
    return server.flavor.vcpus, server.flavor.memory // MiB, server.get_disk().size // MiB


def test_each_revert_gives_the_bytes_of_its_own_starting_point(pond):
    for count in (2, 3):
        start = root(pond)
        pond.ok("server", "resize", "web", *LARGER, "--revertable")
        assert sizes(pond) == (2, 48, 4)
        assert boot(pond) == count
        assert root(pond) != start
        assert len(volumes(pond)) == 3
        reverted = pond.json("server", "resize", "web", "--revert")
        assert reverted["resized_from"] is None
        assert (root(pond), sizes(pond)) == (start, (1, 32, 2))
        assert len(volumes(pond)) == 2
        assert boot(pond) == count  # as if it had not booted since
    pond.ok("server", "resize", "web", *LARGER, "--revertable")
    assert boot(pond) == 4
    said = pond.ok("server", "resize", "web", "--confirm")
    assert said.startswith("confirmed the resize of web")
    assert (len(volumes(pond)), sizes(pond)) == (2, (2, 48, 4))
    assert boot(pond) == 5
    assert "no problem" in pond.ok("doctor")


def test_what_cannot_be_is_refused_and_nothing_changes(raw):
    before = raw.server("web"), volumes(raw), root(raw)
    for status, said, *words in (
        (4, "no resize to confirm or revert", "--confirm"),
        (4, "no resize to confirm or revert", "--revert"),
        (2, "stand alone", "--confirm", "--revert"),
        (2, "stand alone", "--confirm", "--vcpus", "2"),
        (2, "no size was said", "--revertable"),
        (5, "a disk only grows", "--vcpus", "2", "--disk", "1M", "--revertable"),
        (2, "are too many", "--vcpus", "1000", "--revertable"),
    ):
        code, message = raw.fails("server", "resize", "web", *words)
        assert (code, said in message) == (status, True), message
        assert before[2] == root(raw)
        volumes(raw)
        assert sizes(raw) == (1, 32, 2)
        assert raw.server("web").resized_from is None
    raw.ok("server", "start", "web")
    code, message = raw.fails("server", "resize", "web", *LARGER, "--revertable")
    assert (code, "stop it first" in message) == (5, True)
    raw.ok("server", "stop", "web", "--force")
    raw.ok("server", "resize", "web", *LARGER, "--revertable")
    for words in (
        ("resize", "web", "--vcpus", "3", "--revertable"),
        ("rebuild", "web"),
        ("rescue", "web"),
        ("snapshot", "web", "copy"),
    ):
        code, message = raw.fails("server", *words)
        assert (code, "neither confirmed nor reverted" in message) == (4, True), message
    raw.ok("server", "start", "web")
    code, message = raw.fails("server", "resize", "web", "--revert")
    assert (code, "stop it first" in message) == (5, True)
    assert raw.json("server", "resize", "web", "--confirm")["state"] == "running"


@pytest.mark.parametrize("kind", ["xfs", pytest.param("btrfs", marks=pytest.mark.full)])
def test_what_is_kept_shares_its_bytes(millpond, micro_guest, make_filesystem, kind):
    """Where the file system has reflinks: 64 MiB of content are written once."""
    place = make_filesystem(kind, 1024 * MiB)
    pool = place.path / "disks"
    millpond.configure(f"images_type = raw\ndisks_pool_path = {pool}")
    make(millpond, micro_guest, "--disk", "64M")
    volume = pool / millpond.server("web").get_disk().volume
    with volume.open("r+b") as file:
        file.seek(MiB)
        file.write(os.urandom(63 * MiB))
    start = hashlib.sha256(volume.read_bytes()).digest()
    for _ in range(2):
        written = place.bytes_written()
        millpond.ok("server", "resize", "web", "--disk", "80M", "--revertable")
        assert place.bytes_written() - written < 16 * MiB
        boot(millpond)
        millpond.ok("server", "resize", "web", "--revert")
        root_now = pool / millpond.server("web").get_disk().volume
        assert hashlib.sha256(root_now.read_bytes()).digest() == start


@pytest.mark.parametrize(("verb", "step", "moment"), MOMENTS)
def test_killed_it_has_one_disk_or_the_other(raw, verb, step, moment):
    start = root(raw)
    if verb != "resize save":
        raw.ok("server", "resize", "web", *LARGER, "--revertable")
        assert boot(raw) == 2
    resized = root(raw)
    kill_at(raw, verb, step, moment, verb, "web")
    raw.ok("doctor", "--repair")
    server = raw.server("web")
    assert server.operation is None
    assert len(volumes(raw)) == (3 if server.resized_from else 2)
    if verb == "resize revert" and step != "domain":
        assert (root(raw), sizes(raw)) == (start, (1, 32, 2))
    else:
        assert root(raw) == resized
    if server.resized_from:
        raw.ok("server", "resize", "web", "--revert")
        assert (root(raw), sizes(raw)) == (start, (1, 32, 2))
    assert "no problem" in raw.ok("doctor")


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
