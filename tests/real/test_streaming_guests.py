"""Guests that read and check every byte of their disks while these arrive."""

import random
import time

import libvirt
import pytest

from millpond.model.sizes import MiB
from tests.real.test_streaming import check_published, host, kill
from tests.support.guest_ticks import disks
from tests.support.reader import Reader, build_reader
from tests.support.waiting import wait_for
from tests.support.web import Answer

__all__ = ["host"]

SIZE = 64 * MiB
LONGEST_GAP = 2.0
"""Seconds without a word: on a quiet machine it is less than a tenth of it."""


@pytest.fixture
def image(workdir):
    return build_reader(workdir / "reader.raw", SIZE)


def start(host, image, rate, delay=0):
    host.configure(rate=rate, delay=delay)
    host.add(image)
    found = Reader(millpond=host.millpond, id=host.create())
    wait_for(lambda: "." in found.said, 60)
    return found


def reads_a_stream(connection, guest):
    domain = connection.lookupByUUIDString(guest.id)
    return any("nbd" in each for each in disks(domain))


def test_a_guest_sees_no_error_and_no_pause_while_its_disk_arrives(host, image, connection):
    guest = start(host, image, "8M")
    assert reads_a_stream(connection, guest)
    with guest.watched() as gaps:
        check_published(host, image)
        wait_for(lambda: not reads_a_stream(connection, guest), 60)
        guest.wait()
    guest.check()
    assert max(gaps) < LONGEST_GAP
    sent = sum(each for path, each in host.web.sent.items() if not path.endswith(".index"))
    assert sent <= SIZE + MiB  # what was looked at when it was added


def test_a_guest_waits_for_its_source_and_goes_on_by_itself(host, image, connection):
    guest = start(host, image, "512K", delay=60)
    page = host.web.pages["/guest.raw"]
    good, page.usual = page.usual, Answer(status=503)
    wait_for(lambda: state(host) == "paused", 60)
    assert "503" in host.millpond.ok("cache", "list")
    assert "waits for image guest from http://" in host.millpond.ok("server", "list")
    page.usual = good
    wait_for(lambda: state(host) == "running", 60)
    guest.wait()
    guest.check()


def state(host):
    (found,) = host.millpond.json("server", "list")
    return found["state"]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 6))]
)
def test_a_guest_waits_for_the_process_that_is_killed(host, image, connection, seed):
    """Whoever starts it again need not care for the guest."""
    chance = random.Random(seed)
    guest = start(host, image, "4M")
    for _ in range(3):
        time.sleep(chance.uniform(0, 2))
        if not host.streams():
            break
        kill(host.stream)
        time.sleep(chance.uniform(0, 1))
        host.millpond.ok("cache", "prune")
    check_published(host, image)
    wait_for(lambda: state(host) == "running", 90)
    wait_for(lambda: not reads_a_stream(connection, guest), 90)
    guest.wait()
    guest.check()


@pytest.mark.full
def test_libvirtd_restarts_while_it_fills(host, image, libvirtd, connection):
    guest = start(host, image, "4M")
    libvirtd.restart()
    check_published(host, image)
    guest.wait()
    guest.check()
    fresh = libvirt.open(libvirtd.uri)
    wait_for(lambda: not reads_a_stream(fresh, guest), 90)
    fresh.close()
