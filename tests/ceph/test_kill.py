"""kill -9 at every step of a snapshot in the cluster: nothing lost, nothing left."""

import json

import pytest

from millpond.records.journal import StepMoment
from tests.ceph.conftest import rbd_options
from tests.support.guest_ticks import wait_for_ticks
from tests.support.killer import kill_at
from tests.support.verbs import steps_of

MOMENTS = [(step, moment) for step in steps_of("snapshot") for moment in StepMoment]
ORDINARY = [("freeze", StepMoment.END), ("extract", StepMoment.BEGIN)]
"""The others run with make test-full."""


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=[] if each in ORDINARY else [pytest.mark.full])
        for each in MOMENTS
    ],
)
def test_killed_in_a_snapshot(millpond, ceph, rbd_pool, micro_guest, step, moment):
    options = rbd_options(ceph, rbd_pool)
    millpond.configure("\n".join(["images_type = rbd", *options]))
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "TICK 0001")
    kill_at(millpond, "snapshot", step, moment, "snapshot", "web", "snap")
    (listed,) = millpond.json("server", "list")
    assert listed["state"] == f"interrupted (snapshot: {step})"
    millpond.ok("doctor", "--mend")
    wait_for_ticks(millpond, made["id"])
    volume = f"{rbd_pool.name}/{made['disks'][0]['volume']}"
    assert json.loads(ceph.rbd("snap", "ls", volume, "--format", "json")) == []
    assert [each["name"] for each in millpond.json("image", "list")] == ["guest"]
    millpond.ok("server", "snapshot", "web", "snap")
    millpond.ok("server", "delete", "web")
