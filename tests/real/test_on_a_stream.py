"""What can be done with a server whose template is still arriving: all that leaves it there."""

import libvirt
import pytest

from millpond.images.intake import Intake
from millpond.model.sizes import MiB
from millpond.servers import delete, pause, power, rebuild, rescue, snapshot
from millpond.servers.grow import grow
from millpond.servers.rescue import Switching
from tests.support.guest_ticks import disks, last_tick, tick_in, wait_for_ticks
from tests.support.streamed import streamed

INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE


class OnStream:
    def __init__(self, stream, id, domain):
        self.millpond = stream.millpond
        self.host = stream.host()
        self.id = id
        self.domain = domain

    @property
    def server(self):
        return self.host.shared.server("web")

    def look(self):
        """It ticks, and is on the stream now and at its next start."""
        wait_for_ticks(self.millpond, self.id)
        for flags in (0, INACTIVE):
            (disk,) = disks(self.domain, flags)
            assert 'protocol="nbd"' in disk
        assert {each.name for each in self.millpond.disks.iterdir()} == {f"{self.id}_disk"}

    def stop(self):
        power.stop(self.host, self.server, patience=0)

    def start(self, boots):
        power.start(self.host, self.server)
        self.millpond.wait_for_console(self.id, f"BOOTS {boots:04}")


@pytest.fixture
def stream(millpond, busy_guest):
    with streamed(millpond, busy_guest.path) as made:
        yield made


@pytest.fixture
def found(stream, connection):
    id = stream.create("web", stream.millpond.host().images.get("guest"))
    stream.millpond.wait_for_console(id, "TICK 0004")
    made = OnStream(stream, id, connection.lookupByUUIDString(id))
    made.look()
    return made


def image_of(found):
    """A snapshot, as one image."""
    host = found.host
    intake = Intake(host.shared.images_directory)
    made = snapshot.snapshot(host, intake, found.server, snapshot.SnapshotRequest(name="snap"))
    return found.millpond.state / "images" / "blobs" / made.images[0].digest


def test_a_snapshot_while_it_runs(found):
    before = last_tick(found.millpond, found.id)
    assert before <= tick_in(image_of(found))
    found.look()


@pytest.mark.full
def test_a_snapshot_while_it_is_off(found):
    found.stop()
    assert tick_in(image_of(found)) >= last_tick(found.millpond, found.id)


@pytest.mark.full
def test_it_grows(found):
    grow(found.host, found.server, "disk", 8 * MiB)
    assert found.host.block_jobs.size(found.id, "vda") == 8 * MiB
    found.look()
    found.stop()
    grow(found.host, found.server, "disk", 16 * MiB)
    found.start(2)
    assert found.host.block_jobs.size(found.id, "vda") == 16 * MiB
    found.look()


@pytest.mark.full
def test_it_is_stopped_started_paused_and_rebooted(found):
    found.stop()
    found.start(2)
    pause.pause(found.host, found.server)
    pause.unpause(found.host, found.server)
    power.reboot(found.host, found.server, patience=0)
    found.millpond.wait_for_console(found.id, "BOOTS 0003")
    found.look()


@pytest.mark.full
def test_it_is_rebuilt_and_rescued_from_the_same_image(found):
    image = found.host.images.get("guest")
    rebuild.rebuild(found.host, found.server, image, patience=0)
    found.millpond.wait_for_console(found.id, "BOOTS 0001")
    rescue.rescue(found.host, found.server, image, Switching())
    rescue.unrescue(found.host, found.server, Switching())


@pytest.mark.full
def test_it_is_deleted(found):
    delete.delete(found.host, found.server)
    assert list(found.millpond.disks.iterdir()) == []
