"""Logical volumes that grow by libvirt alone, as on a host whose devices cannot be opened here."""

import pytest

from millpond.errors import NoSpace, StateNotWritable, Unsupported
from millpond.images.intake import Intake
from millpond.model.server import Flavor
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.servers import create, delete, recover
from millpond.servers.create import ServerRequest
from millpond.servers.grow import grow as grow_disk
from tests.lvm.test_servers import SECONDS
from tests.lvm.volume_group import EXTENT
from tests.real.test_kill import kill_at, listed, moments
from tests.support.millpond import without_files
from tests.support.unwritable import unwritable

SECRET = b"SECRET!!"

TELLING = [("copy", StepMoment.END), ("extend", StepMoment.BEGIN), ("extend", StepMoment.END)]
"""At the others the disk is as it was, or as it will be."""


@pytest.fixture
def made(millpond, volume_group, micro_guest):
    """A server that was never started; the free extents were somebody else's."""
    millpond.configure(f"images_type = lvm\nimages_volume_group = {volume_group.name}")
    old = volume_group.create("old", 64 * MiB)
    with open(old, "wb") as device:
        device.write(SECRET * (64 * MiB // len(SECRET)))
    volume_group.clear()
    host = millpond.host()
    image = Intake(host.shared.images_directory).add(micro_guest.path, name="guest")
    request = ServerRequest(name="web", image=image, flavor=Flavor(memory=32 * MiB))
    create.create(host, request, start=False)
    return millpond


def grow(millpond, size, role="disk"):
    host = millpond.host()
    grow_disk(without_files(host), host.shared.server("web"), role, size)


def content(millpond, volume_group):
    path = volume_group.path(millpond.server("web").disks[0].volume)
    with open(path, "rb") as device:
        return device.read()


def test_a_disk_grows_by_copy_while_its_server_is_off(made, volume_group):
    before = content(made, volume_group)
    with pytest.raises(NoSpace):
        grow(made, volume_group.free() + 1)
    grow(made, 13 * MiB)
    server = made.server("web")
    assert volume_group.volumes() == {server.disks[0].volume: 4 * EXTENT}
    assert server.disks[0].size == 4 * EXTENT
    assert content(made, volume_group) == before.ljust(4 * EXTENT, b"\0")
    made.ok("server", "start", "web")
    made.wait_for_console(server.id, "READY", SECONDS)
    with pytest.raises(Unsupported, match="growing disk while the server runs"):
        grow(made, 32 * MiB)
    assert listed(made) == {"web": "running"}
    assert volume_group.volumes() == {server.disks[0].volume: 4 * EXTENT}


@pytest.mark.parametrize(
    "files",
    [False, pytest.param(True, marks=pytest.mark.full)],
    ids=["without files", "with files"],
)
@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=[] if each in TELLING else [pytest.mark.full])
        for each in moments("grow")
    ],
)
def test_killed_while_a_disk_grows_by_copy(made, volume_group, step, moment, files):
    """Who mends it goes on as it was begun, also where the devices can be opened."""
    before = content(made, volume_group)
    kill_at(made, "grow", step, moment, "grow", "web", 8 * MiB, "without-files")
    assert listed(made) == {"web": f"interrupted (grow: {step})"}
    host = made.host()
    recover.recover(host if files else without_files(host), host.shared.server("web"))
    assert listed(made) == {"web": "stopped"}
    assert volume_group.volumes() == {made.server("web").disks[0].volume: 2 * EXTENT}
    assert content(made, volume_group) == before.ljust(2 * EXTENT, b"\0")


def test_the_disk_is_gone_and_only_its_copy_is_there(made, volume_group, connection):
    """The worst moment: libvirt has deleted the one and not begun the other."""
    before = content(made, volume_group)
    kill_at(made, "grow", "extend", StepMoment.BEGIN, "grow", "web", 8 * MiB, "without-files")
    pool = connection.storagePoolLookupByName("nova-disks-pool-lvm")
    volume = made.server("web").disks[0].volume
    pool.storageVolLookupByName(volume).delete()
    assert volume_group.volumes() == {f"{volume}.grown": EXTENT}
    reported = made.run("doctor").stdout
    assert "no record names" not in reported
    host = unwritable(made, without_files(made.host()))
    with pytest.raises(StateNotWritable):
        recover.recover(host, made.server("web"))
    assert volume_group.volumes() == {f"{volume}.grown": EXTENT}
    assert "grow was finished" in made.run("doctor", "--mend").stdout
    assert volume_group.volumes() == {volume: 2 * EXTENT}
    assert content(made, volume_group) == before.ljust(2 * EXTENT, b"\0")


def test_killed_while_a_disk_grows_and_deleted_without_mending(made, volume_group):
    kill_at(made, "grow", "extend", StepMoment.BEGIN, "grow", "web", 8 * MiB, "without-files")
    host = made.host()
    delete.delete(host, host.shared.server("web"))
    assert volume_group.volumes() == {}
