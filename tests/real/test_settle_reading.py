"""A guest that reads its whole disk, checks each byte and writes to it leaves a stream: by
killing whatever takes part, and without that."""

import random
import subprocess
import sys
import time

import pytest

from millpond.servers.settle import settle
from tests.support.guest_ticks import disks
from tests.support.reader import Reader, build_reader
from tests.support.streamed import streamed
from tests.support.waiting import wait_for

MIB = 1024 * 1024
SIZE = 12 * MIB
MOST_COPIED = MIB
LONGEST_GAP = 0.25
LONGEST = 1.0


@pytest.fixture
def stream(millpond, workdir):
    with streamed(millpond, build_reader(workdir / "reader.raw", SIZE)) as made:
        yield made


@pytest.fixture
def web(stream, connection):
    id = stream.create("web", stream.millpond.host().images.get("guest"))
    found = Reader(millpond=stream.millpond, id=id)
    wait_for(lambda: "..." in found.said, 30)
    return found


def check_settled(stream, web, connection):
    """What served the stream is gone, and all of the disk is read again."""
    (disk,) = disks(connection.lookupByUUIDString(web.id))
    assert "nbd" not in disk
    stream.end()
    web.wait("P", 2)
    web.check()
    assert stream.millpond.server("web").operation is None
    path = stream.millpond.disks / f"{web.id}_disk"
    assert {each.name for each in stream.millpond.disks.iterdir()} == {path.name}
    connection.lookupByUUIDString(web.id).destroy()
    words = ("qemu-img", "check", "-q", "-f", "qcow2", str(path))
    assert subprocess.run(words, check=False).returncode == 0


def test_it_sees_no_wrong_byte_no_error_and_no_gap(stream, web, connection):
    """On a busy machine its times are no more than printed."""
    disk = stream.millpond.disks / f"{web.id}_disk"
    web.wait(count=40)
    stream.arrive()
    host, server = stream.millpond.host(), stream.millpond.server("web")
    with web.watched() as usual:
        time.sleep(2)
    before = disk.stat().st_blocks
    with web.watched() as gaps:
        began = time.monotonic()
        assert settle(host, server)
        took = time.monotonic() - began
        time.sleep(0.5)
    copied = (disk.stat().st_blocks - before) * 512
    longest, without = max(gaps), max(usual)
    print(f"settled in {took:.2f} s; gaps {longest:.3f} s, before {without:.3f} s; {copied} bytes")
    assert copied <= MOST_COPIED
    if without < LONGEST_GAP / 2:
        assert longest < LONGEST_GAP
        assert took < LONGEST
    check_settled(stream, web, connection)


SETTLE = """
import sys
from pathlib import Path
from millpond.hosts.deployment import Deployment
from millpond.servers.settle import settle
settle(*Deployment.load([Path(sys.argv[1])]).find("web"))
"""


def begin(stream):
    return subprocess.Popen([sys.executable, "-c", SETTLE, str(stream.millpond.config)])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_the_command_is_killed_at_random_moments(stream, web, connection, seed):
    chance = random.Random(seed)
    stream.arrive()
    for _ in range(4):
        process = begin(stream)
        time.sleep(chance.uniform(0.4, 2))
        process.kill()
        process.wait()
    stream.millpond.ok("doctor", "--repair")
    assert not settle(stream.millpond.host(), stream.millpond.server("web")), "it is done"
    check_settled(stream, web, connection)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_libvirtd_is_killed_at_random_moments(stream, web, libvirtd, seed):
    chance = random.Random(seed)
    stream.arrive()
    for _ in range(3):
        process = begin(stream)
        time.sleep(chance.uniform(0.4, 2))
        libvirtd.kill()
        libvirtd.start()
        process.wait(60)
    stream.millpond.ok("doctor", "--repair")
    with libvirtd.connect() as again:
        check_settled(stream, web, again)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_what_serves_the_stream_is_killed_while_it_settles(stream, web, connection, seed):
    """Its guest may wait in the middle: then it goes on when all of it is done."""
    chance = random.Random(seed)
    stream.arrive()
    process = begin(stream)
    time.sleep(chance.uniform(0.4, 1.5))
    stream.end()
    process.wait(60)
    stream.millpond.ok("doctor", "--repair")
    check_settled(stream, web, connection)
