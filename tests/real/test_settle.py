"""Servers that run are moved from a stream onto their template's own file, and go on."""

import subprocess
import threading
import time
from contextlib import suppress
from itertools import pairwise

import libvirt
import libvirt_qemu
import pytest

from millpond.errors import ConnectionLost
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.records.journal import StepMoment
from millpond.servers.rescue import Switching, rescue
from millpond.servers.settle import settle, settle_all
from millpond.servers.snapshot import SnapshotRequest, snapshot
from millpond.servers.streams import find_streaming
from tests.support.guest_ticks import disks, last_tick, tick_on_disk, wait_for_ticks
from tests.support.killer import kill_at
from tests.support.streamed import streamed
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
MOST_COPIED = 1024 * 1024
MIB = 1024 * 1024
BEYOND = 15 * MIB
"""Of the image, which the guest never touches: it is read from the template."""

_DEVICE = "/machine/peripheral/virtio-disk0/virtio-backend"

MOMENTS = [(step, moment) for step in steps_of("settle") for moment in StepMoment]
QUICK = ("rebase", StepMoment.END)
each_moment = pytest.mark.parametrize(
    ("step", "moment"),
    [each if each == QUICK else pytest.param(*each, marks=pytest.mark.full) for each in MOMENTS],
)


class OnStream:
    """A server whose guest ticks on its disk, above a template that has arrived by now."""

    def __init__(self, stream, id, domain, log):
        self.stream = stream
        self.millpond = stream.millpond
        self.id = id
        self.domain = domain
        self.log = log
        self.disk = self.millpond.disks / f"{id}_disk"
        self.inode = self.disk.stat().st_ino

    def settle(self):
        assert settle(self.millpond.host(), self.millpond.server("web"))

    def read_all(self):
        """What the guest has never touched, by its own device; QEMU prints it to its log."""
        before = self.log.stat().st_size
        words = f'qemu-io -d {_DEVICE} "read -P 0xab 1M {BEYOND}"'
        flags = libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
        assert libvirt_qemu.qemuMonitorCommand(self.domain, words, flags) == ""
        wait_for(lambda: " ops; " in self.log.read_text()[before:], 10)
        said = self.log.read_text()[before:]
        assert f"read {BEYOND}/{BEYOND} bytes" in said, said
        assert "failed" not in said, said

    def check_left(self):
        """It is as if it had never been on a stream."""
        assert self.millpond.server("web").operation is None
        assert {each.name for each in self.millpond.disks.iterdir()} == {self.disk.name}
        assert self.disk.stat().st_ino == self.inode
        (disk,) = disks(self.domain, INACTIVE)
        assert f'pool="nova-disks-pool" volume="{self.disk.name}"' in disk
        assert f'pool="nova-base-images-pool" volume="{self.stream.path.name}"' in disk
        assert "nbd" not in disk

    def check_that_it_runs(self):
        """Also when nobody serves the stream any more."""
        self.check_left()
        (disk,) = disks(self.domain)
        assert "nbd" not in disk
        assert str(self.disk) in disk
        assert str(self.stream.path) in disk
        self.stream.end()
        wait_for_ticks(self.millpond, self.id, 10)
        self.read_all()
        self.millpond.ok("server", "stop", "web", "--force")
        assert self.disk.owner() == "root"
        self.check_its_bytes()

    def check_its_bytes(self, boots=2):
        """Of a server that is off, and after its next start."""
        self.stream.end()
        ticked = last_tick(self.millpond, self.id)
        assert tick_on_disk(self.millpond, "web") >= ticked
        words = ("qemu-img", "check", "-q", "-f", "qcow2", str(self.disk))
        assert subprocess.run(words, check=False).returncode == 0
        self.millpond.ok("server", "start", "web")
        self.millpond.wait_for_console(self.id, f"BOOTS {boots:04}")
        self.read_all()
        self.check_left()


@pytest.fixture
def stream(millpond, busy_guest, workdir):
    image = workdir / "long.raw"
    image.write_bytes(busy_guest.path.read_bytes() + b"\xab" * BEYOND)
    with streamed(millpond, image) as made:
        yield made


@pytest.fixture
def arriving(stream, connection, libvirtd):
    """On the stream, and its template is not there yet."""
    id = stream.create("web", stream.millpond.host().images.get("guest"))
    stream.millpond.wait_for_console(id, "TICK 0004")
    domain = connection.lookupByUUIDString(id)
    assert 'protocol="nbd"' in disks(domain)[0]
    return OnStream(stream, id, domain, libvirtd.directory / "log/qemu/web.log")


@pytest.fixture
def arrived(arriving):
    arriving.stream.arrive()
    return arriving


def test_its_disk_stays_and_the_stream_may_end(arrived):
    before = arrived.disk.stat().st_blocks
    arrived.settle()
    assert (arrived.disk.stat().st_blocks - before) * 512 <= MOST_COPIED
    assert not settle(arrived.millpond.host(), arrived.millpond.server("web")), "it is done"
    arrived.check_that_it_runs()


def test_as_long_as_the_template_arrives_it_stays_on_the_stream(arriving):
    host, server = arriving.stream.host(), arriving.millpond.server("web")
    assert find_streaming(host, server) == [server.get_disk()]
    assert not settle(host, server)
    assert 'protocol="nbd"' in disks(arriving.domain)[0]
    arriving.stream.arrive()
    assert settle_all(arriving.millpond.host(), arriving.stream.template.volume) == []
    arriving.check_that_it_runs()


@pytest.mark.full
def test_a_server_that_is_off_needs_only_its_next_start(arrived):
    arrived.millpond.ok("server", "stop", "web", "--force")
    assert not settle(arrived.millpond.host(), arrived.millpond.server("web"))
    arrived.check_its_bytes()


@pytest.mark.full
def test_all_disks_of_a_server_are_moved_at_once(arriving):
    """In rescue it has two; and libvirt has had overlays above the first one before."""
    millpond, host = arriving.millpond, arriving.stream.host()
    intake, request = Intake(host.shared.images_directory), SnapshotRequest(name="snap")
    snapshot(host, intake, millpond.server("web"), request)
    rescue(host, millpond.server("web"), host.images.get("guest"), Switching())
    assert len(find_streaming(host, millpond.server("web"))) == 2
    arriving.stream.arrive()
    arriving.settle()
    arriving.stream.end()
    for flags in (0, INACTIVE):
        for disk in disks(arriving.domain, flags):
            assert "nbd" not in disk
            assert arriving.stream.path.name in disk
    wait_for_ticks(millpond, arriving.id)
    millpond.ok("server", "unrescue", "web")
    millpond.wait_for_console(arriving.id, "BOOTS 0002")
    millpond.ok("server", "stop", "web", "--force")
    arriving.check_its_bytes(3)


@pytest.mark.full
def test_doctor_finds_and_moves_it(arrived):
    code, message = arrived.millpond.fails("doctor")
    assert code == 1, message
    said = arrived.millpond.run("doctor").stdout
    assert "server 'web' still reads what backs disk from a stream" in said
    arrived.millpond.ok("doctor", "--repair")
    arrived.check_that_it_runs()


@each_moment
def test_killed_at_a_step_it_is_finished(arrived, step, moment):
    millpond = arrived.millpond
    kill_at(millpond, "settle", step, moment, "settle", "web")
    wait_for_ticks(millpond, arrived.id)
    code, message = millpond.fails("server", "snapshot", "web", "snap")
    assert (code, "in the middle of 'settle'" in message) == (4, True)
    arrived.read_all()
    millpond.ok("doctor", "--repair")
    arrived.check_that_it_runs()


@pytest.mark.full
@pytest.mark.parametrize(("step", "moment"), MOMENTS)
def test_libvirtd_is_killed_at_a_step(arrived, libvirtd, step, moment):
    """While the operation goes on, or fails and is finished."""
    millpond = arrived.millpond

    def watch(*where):
        if where == ("settle", step, moment):
            libvirtd.kill()
            libvirtd.start()

    host, server = Deployment.load([millpond.config], watch).find("web")
    with suppress(ConnectionLost):
        settle(host, server)
    millpond.ok("doctor", "--repair")
    with libvirtd.connect() as again:
        arrived.domain = again.lookupByUUIDString(arrived.id)
        arrived.check_that_it_runs()


@each_moment
def test_the_guest_goes_off_meanwhile(arrived, step, moment):
    millpond = arrived.millpond
    kill_at(millpond, "settle", step, moment, "settle", "web")
    wait_for_ticks(millpond, arrived.id)
    arrived.domain.destroy()
    arrived.stream.end()
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(arrived.id, "BOOTS 0002")
    millpond.ok("server", "stop", "web", "--force")
    arrived.check_left()
    arrived.check_its_bytes(3)


@pytest.mark.full
def test_the_host_starts_the_server_again_meanwhile(arrived):
    """From the definition, which may name an overlay and the stream."""
    millpond = arrived.millpond
    kill_at(millpond, "settle", "rebase", StepMoment.END, "settle", "web")
    arrived.domain.destroy()
    arrived.domain.create()
    millpond.wait_for_console(arrived.id, "BOOTS 0002")
    millpond.ok("doctor", "--repair")
    arrived.check_left()
    millpond.ok("server", "stop", "web", "--force")
    arrived.check_its_bytes(3)


@pytest.mark.full
@pytest.mark.parametrize("step", ["rebase", "commit"])
def test_it_is_deleted_in_the_middle(arrived, step):
    kill_at(arrived.millpond, "settle", step, StepMoment.END, "settle", "web")
    arrived.millpond.ok("server", "delete", "web")
    assert list(arrived.millpond.disks.iterdir()) == []


@pytest.mark.full
def test_the_guest_is_kept_waiting_for_a_moment_only(arrived):
    """It ticks every 55 ms. On a busy machine it fails: what it says is how long it took."""
    seen, end = [], threading.Event()

    def look():
        last = None
        while not end.is_set():
            if (now := last_tick(arrived.millpond, arrived.id)) != last:
                seen.append(time.monotonic())
                last = now
            time.sleep(0.005)

    host, server = arrived.millpond.host(), arrived.millpond.server("web")
    thread = threading.Thread(target=look)
    thread.start()
    time.sleep(2)
    began = time.monotonic()
    settle(host, server)
    ended = time.monotonic()
    time.sleep(1)
    end.set()
    thread.join()
    gaps = [(after - before, before > began) for before, after in pairwise(seen)]
    usual = max(gap for gap, is_later in gaps if not is_later)
    longest = max(gap for gap, is_later in gaps if is_later)
    print(f"settled in {ended - began:.2f} s; gaps: {longest:.3f} s, before {usual:.3f} s")
    assert ended - began < 1
    assert longest < 0.25
    arrived.check_that_it_runs()
