"""Other vCPUs and memory."""

import pytest
from lxml import etree

from millpond.records.journal import StepMoment
from tests.support.killer import kill_at
from tests.support.verbs import steps_of

MOMENTS = [(step, moment) for step in steps_of("resize") for moment in StepMoment]


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", "web", *words)


def sizes(connection):
    domain = etree.fromstring(connection.lookupByName("web").XMLDesc())
    return int(domain.findtext("vcpu")), int(domain.findtext("memory"))


def test_a_server_has_other_sizes_at_its_next_start(millpond, web, connection):
    code, message = millpond.fails("server", "resize", "web", "--vcpus", "2")
    assert (code, "stop it first" in message) == (5, True)
    millpond.wait_for_console(web["id"], "READY")
    millpond.ok("server", "stop", "web", "--force")
    words = ("server", "resize", "web", "--vcpus", "2", "--memory", "48M", "--disk", "2M")
    resized = millpond.json(*words)
    assert (resized["flavor"]["vcpus"], resized["flavor"]["memory"]) == (2, 48 * 1024**2)
    assert resized["disks"][0]["size"] == 2 * 1024**2
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(web["id"], "BOOTS 0002")
    assert sizes(connection) == (2, 48 * 1024)
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "resize", "web", "--vcpus", "1", "--memory", "16M")
    assert sizes(connection) == (1, 16 * 1024)
    assert "no problem" in millpond.ok("doctor")


def test_sizes_that_cannot_be_are_refused(millpond, web, connection):
    millpond.ok("server", "stop", "web", "--force")
    for status, said, *words in (
        (2, "no size was said"),
        (2, "no guest boots with less than 16 MiB", "--memory", "1M"),
        (2, "is not a size", "--memory", "512"),
        (2, "are too many", "--vcpus", "1000"),
        (2, "are too much", "--memory", "900T"),
        (2, "is not in the range", "--vcpus", "0"),
    ):
        code, message = millpond.fails("server", "resize", "web", *words)
        assert (code, said in message) == (status, True), message
    assert sizes(connection) == (1, 32 * 1024)


@pytest.mark.parametrize(("step", "moment"), MOMENTS)
def test_killed_in_a_resize(millpond, web, connection, step, moment):
    millpond.ok("server", "stop", "web", "--force")
    kill_at(millpond, "resize", step, moment, "resize", "web")
    millpond.ok("doctor", "--repair")
    assert millpond.server("web").operation is None
    assert sizes(connection) == (2, 64 * 1024)


def test_what_it_takes_follows_in_placement(multi_host, micro_guest):
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-start")
    made = multi_host.json("server", "create", "web", *words)
    multi_host.ok("server", "resize", "web", "--vcpus", "2", "--memory", "64M")
    placed = multi_host.deployment().scheduler.placement.allocations.of(made["id"])
    held = next(each for each in placed.held.values() if "VCPU" in each)
    assert held == {"VCPU": 2, "MEMORY_MB": 64}
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")
