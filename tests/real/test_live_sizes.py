"""vCPUs and memory of a server that runs."""

import re

import pytest
from lxml import etree

from millpond.records.journal import StepMoment
from tests.support.killer import kill_at
from tests.support.waiting import wait_for

MiB = 1024**2
SMALL = ("--vcpus", "1", "--memory", "32M", "--network", "none")
LEFT = [
    pytest.param(step, moment, marks=() if step == "live" else pytest.mark.full)
    for step in ("claim", "live", "domain")
    for moment in StepMoment
]


@pytest.fixture
def web(millpond, micro_guest):
    """Whose guest has no driver for the balloon."""
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", *SMALL, "--max-vcpus", "3", "--max-memory", "64M")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "READY")
    return made


def definition(connection, flags=0):
    """vCPUs and KiB of memory, each with the most of it."""
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc(flags))
    vcpu = xml.find("vcpu")
    return (
        (int(vcpu.get("current") or vcpu.text), int(vcpu.text)),
        (int(xml.findtext("currentMemory")), int(xml.findtext("memory"))),
    )


def both(connection):
    """As it runs, and as it is defined."""
    running, defined = definition(connection), definition(connection, flags=2)
    assert running[0] == defined[0]
    return defined  # of the memory libvirt says what the guest has taken, which may be all


def told(millpond, id):
    """CPUs and MiB, by the guest's own word."""
    found = re.findall(r"SIZES: (\d+) CPUs, (\d+) MiB", millpond.console(id))
    return tuple(map(int, found[-1])) if found else None


def test_a_linux_guest_follows(millpond, linux_guest, connection):
    millpond.ok("image", "add", linux_guest, "--name", "linux")
    words = ("--image", "linux", "--memory", "192M", "--network", "none")
    room = ("--max-vcpus", "3", "--max-memory", "320M")
    id = millpond.json("server", "create", "web", *words, *room)["id"]
    wait_for(lambda: told(millpond, id), 60)
    number = connection.lookupByName("web").ID()
    started = told(millpond, id)
    wait_for(lambda: told(millpond, id)[1] < 192, 30)  # the balloon takes what is above
    assert started[0] == 1

    resized = millpond.json("server", "resize", "web", "--vcpus", "3", "--memory", "320M")
    assert (resized["flavor"]["vcpus"], resized["flavor"]["memory"]) == (3, 320 * MiB)
    wait_for(lambda: told(millpond, id)[0] == 3 and told(millpond, id)[1] > 256, 30)
    assert both(connection) == ((3, 3), (320 * 1024, 320 * 1024))

    millpond.ok("server", "resize", "web", "--memory", "160M")
    wait_for(lambda: told(millpond, id)[1] < 160, 30)
    assert both(connection) == ((3, 3), (160 * 1024, 320 * 1024))
    assert connection.lookupByName("web").ID() == number  # the same QEMU
    assert "3 vCPU, 160 MiB of 320 MiB memory" in millpond.ok("server", "show", "web")
    before = both(connection), millpond.server("web")
    code, message = millpond.fails("server", "resize", "web", "--vcpus", "1", "--memory", "192M")
    assert (code, "keeps the vCPUs that it has" in message) == (5, True), message
    assert (both(connection), millpond.server("web")) == before
    assert "no problem" in millpond.ok("doctor")


def test_what_cannot_be_is_refused_and_nothing_changes(millpond, web, connection):
    before = both(connection), millpond.server("web")
    for status, said, *words in (
        (5, "3 vCPUs and 64 MiB of memory at the most", "resize", "web", "--vcpus", "4"),
        (5, "3 vCPUs and 64 MiB of memory at the most", "resize", "web", "--memory", "65M"),
        (5, "has not followed the balloon", "resize", "web", "--vcpus", "2", "--memory", "48M"),
        (5, "a disk only grows", "resize", "web", "--vcpus", "2", "--disk", "512K"),
        (2, "there is no flavour", "resize", "web", "--flavor", "nosuch"),
        (2, "less than the 32 MiB that it has", "set", "web", "--max-memory", "16M"),
        (2, "are too many", "set", "web", "--max-vcpus", "1000"),
        (2, "are too much", "set", "web", "--max-memory", "900T"),
        (2, "is not in the range", "set", "web", "--max-vcpus", "-1"),
    ):
        code, message = millpond.fails("server", *words)
        assert (code, said in message) == (status, True), message
        assert (both(connection), millpond.server("web")) == before, words
    millpond.ok("server", "pause", "web")
    code, message = millpond.fails("server", "resize", "web", "--vcpus", "2")
    assert (code, "it is paused" in message) == (5, True), message


def test_what_it_can_become_is_changed_for_the_next_start(millpond, web, connection):
    millpond.ok("server", "resize", "web", "--vcpus", "2")
    assert both(connection) == ((2, 3), (32 * 1024, 64 * 1024))
    said = millpond.ok("server", "set", "web", "--max-vcpus", "4", "--max-memory", "0")
    assert said.endswith("; reboot it for that\n")
    assert definition(connection)[0] == (2, 3)
    assert definition(connection, flags=2) == ((2, 4), (32 * 1024, 32 * 1024))
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.ok("server", "resize", "web", "--vcpus", "4")
    assert both(connection) == ((4, 4), (32 * 1024, 32 * 1024))
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "set", "web", "--max-vcpus", "0")
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "resize", "web", "--vcpus", "1")
    millpond.ok("server", "start", "web")
    assert both(connection) == ((1, 1), (32 * 1024, 32 * 1024))


def test_sizes_by_the_name_of_a_flavour(millpond, web):
    with millpond.config.open("a") as config:
        config.write("[flavor:large]\nvcpus = 2\nmemory = 48M\ndisk = 1G\n")
        config.write("[flavor:odd]\nvcpus = 2\nmemory = 48M\nswap = 1M\n")
    code, message = millpond.fails("server", "resize", "web", "--flavor", "odd")
    assert (code, "has another swap" in message) == (2, True), message
    millpond.ok("server", "stop", "web", "--force")
    resized = millpond.json("server", "resize", "web", "--flavor", "large", "--revertable")
    flavor = resized["flavor"]
    assert (flavor["name"], flavor["vcpus"], flavor["memory"]) == ("large", 2, 48 * MiB)
    assert resized["disks"][0]["size"] == 1024 * MiB
    reverted = millpond.json("server", "resize", "web", "--revert")
    assert (reverted["flavor"]["name"], reverted["flavor"]["vcpus"]) == ("", 1)
    assert reverted["disks"][0]["size"] == MiB


@pytest.mark.parametrize(("step", "moment"), LEFT)
def test_killed_it_is_as_before_or_has_its_vcpus(millpond, web, connection, step, moment):
    before = both(connection), millpond.server("web")
    kill_at(millpond, "resize", step, moment, "resize vcpus", "web", "3")
    millpond.ok("doctor", "--repair")
    if (step, moment) in (("claim", "begin"), ("claim", "end"), ("live", "begin")):
        assert (both(connection), millpond.server("web")) == before
    else:
        assert both(connection)[0] == (3, 3)
        assert millpond.server("web").flavor.vcpus == 3
    assert "no problem" in millpond.ok("doctor")


def test_what_is_current_is_claimed(multi_host, micro_guest):
    multi_host.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", *SMALL, "--max-vcpus", "3", "--max-memory", "64M")
    made = multi_host.json("server", "create", "web", *words)

    def held():
        placed = multi_host.deployment().scheduler.placement.allocations.of(made["id"]).held
        return next(each for each in placed.values() if "VCPU" in each)

    assert held() == {"VCPU": 1, "MEMORY_MB": 32}
    multi_host.ok("server", "resize", "web", "--vcpus", "2")
    assert held() == {"VCPU": 2, "MEMORY_MB": 32}
    assert multi_host.ok("doctor", "--placement").endswith("no problem\n")
