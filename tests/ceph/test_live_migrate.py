"""A server that runs moves between hosts of one cluster: its memory travels, its disk does not."""

import struct
import subprocess

import pytest

from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.ceph.conftest import POOL
from tests.ceph.test_hosts import in_ceph  # noqa: F401
from tests.real.test_live_migrate import LONGEST_PAUSE, TICK
from tests.support.guest_ticks import MovingGuest
from tests.support.killer import kill_at
from tests.support.waiting import wait_for

HELD = 48
"""MiB that the disk holds, more than the server has memory."""
KILLS = [
    pytest.param(step, moment, marks=pytest.mark.full, id=f"{step}-{moment}")
    for step, moment in (
        ("copy", StepMoment.END),
        ("migrate", StepMoment.END),
        ("remove", StepMoment.BEGIN),
    )
]


class RbdGuest(MovingGuest):
    @property
    def image(self):
        return f"{POOL}/{self.hosts.deployment().server('web').get_disk().volume}"


@pytest.fixture
def web(in_ceph, busy_guest, ceph):  # noqa: F811
    """It runs on alder, and writes all the time."""
    in_ceph.ok("host", "list", "--refresh")
    in_ceph.ok("image", "add", busy_guest.path, "--name", "busy")
    words = ("--image", "busy", "--memory", "16M", "--disk", "64M", "--host", "alder")
    in_ceph.ok("server", "create", "web", *words, "--config-drive", "--no-start")
    guest = RbdGuest(in_ceph, in_ceph.deployment().server("web").id)
    target = f"rbd:{guest.image}:id=admin:conf={ceph.conf}"
    subprocess.run(
        ["qemu-io", "-f", "raw", "-c", f"write -P 7 8M {HELD}M", target],
        check=True,
        capture_output=True,
    )
    in_ceph.ok("server", "start", "web")
    guest.wait_for_ticks("alder", more=1)
    return guest


def tick_on_disk(hosts, ceph, image):
    path = hosts.directory / "off.raw"
    ceph.rbd("export", "--no-progress", image, str(path))
    with path.open("rb") as file:
        file.seek(TICK)
        return struct.unpack("<H", file.read(2))[0]


def test_only_its_memory_travels_and_its_guest_notices_nothing(in_ceph, ceph, web):  # noqa: F811
    written = ceph.bytes_written()
    told = in_ceph.json("server", "migrate", "web", "--host", "birch", "--live")
    assert ceph.bytes_written() - written < 4 * MiB
    assert {each["role"]: each["way"] for each in told["disks"]} == {
        "disk": "shared",
        "disk.config": "copy",
    }
    assert told["bytes"] <= MiB  # the config drive
    assert told["moved"] < HELD * MiB
    assert 0 < told["pause"] < LONGEST_PAUSE
    print(f"moved {told['moved'] // 1024} KiB, the longest pause: {told['pause']} s")
    assert len(ceph.watchers(web.image)) == 1
    web.check_gapless("alder", "birch")
    in_ceph.ok("server", "migrate", "web", "--host", "cedar", "--live")
    assert len(ceph.watchers(web.image)) == 1
    web.check_gapless("alder", "birch", "cedar")
    assert in_ceph.taken_by() == {web.id}
    in_ceph.ok("server", "stop", "web", "--force")
    web.keep_log("cedar")
    last = web.ticks("alder", "birch", "cedar")[-1]
    assert tick_on_disk(in_ceph, ceph, web.image) in (last, last + 1)
    assert in_ceph.ok("doctor", "--placement").endswith("no problem\n")
    in_ceph.ok("server", "delete", "web", "--yes")


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_killed_there_one_host_has_it_and_its_disk(in_ceph, ceph, web, step, moment):  # noqa: F811
    kill_at(in_ceph, "live migrate", step, moment, "live", "web", "birch")
    if step != "copy":
        web.keep_log("birch")
    in_ceph.run("doctor", "--repair")
    where = "alder" if step == "copy" else "birch"
    assert (in_ceph.where("web"), in_ceph.deployment().server("web").operation) == (where, None)
    web.check_gapless(*dict.fromkeys(("alder", where)))
    wait_for(lambda: len(ceph.watchers(web.image)) == 1, 60)
    assert in_ceph.ok("doctor", "--placement").endswith("no problem\n")
