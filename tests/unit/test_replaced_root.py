"""Verbs that put another root disk into a server's place: what speaks against it, and what is
done when it was interrupted."""

from dataclasses import replace

import pytest

from millpond.errors import DiskOverlaid, NoRoom
from millpond.model.server import SAVED, Flavor, Server
from millpond.model.sizes import MiB
from millpond.servers import power, rebuild, rescue, resize, revert
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from millpond.servers.recover import recover
from millpond.servers.rescue import Switching
from millpond.servers.resize import Sizes
from millpond.xml.domain import BackingStoreXml, SourceXml
from tests.support.memory_host import IMAGE, NONE, Fault, Killed, World

OTHER = replace(IMAGE, name="other")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def create(world: World, *, vcpus: int = 1, start: bool = False) -> Server:
    flavor = Flavor(vcpus=vcpus, disk=4 * MiB)
    request = ServerRequest(name="web", image=IMAGE, flavor=flavor)
    return create_server(world.host, request, start=start)


def put_overlay(world: World, server: Server, target: str) -> None:
    """As ``virsh snapshot-create-as --disk-only`` does."""
    defined = world.domains.defined[server.id]
    disks = tuple(
        replace(
            each,
            type="file",
            source=SourceXml(file="/snap/mine.qcow2"),
            backing=BackingStoreXml(type=each.type, source=each.source, below=each.backing),
        )
        if each.target == target
        else each
        for each in defined.disks
    )
    world.domains.defined[server.id] = replace(defined, disks=disks)


@pytest.mark.parametrize(
    "act",
    [revert.save, lambda host, server: resize.resize(host, server, Sizes(vcpus=2))],
    ids=["save", "resize"],
)
def test_a_disk_below_somebody_elses_overlay_is_no_starting_point(world, act):
    server = create(world)
    put_overlay(world, server, server.get_disk().target)
    with pytest.raises(DiskOverlaid):
        act(world.host, server)
    assert world.records.find(server.id) == server


def test_nor_is_it_put_back_after_a_rescue(world):
    server = create(world)
    rescued = rescue.rescue(world.host, server, OTHER, Switching())
    power.stop(world.host, server, patience=0)
    put_overlay(world, server, rescued.get_disk().target)
    with pytest.raises(DiskOverlaid):
        rescue.unrescue(world.host, server, Switching())
    found = world.records.find(server.id)
    assert found is not None
    assert found.is_rescued
    assert found.operation is None


def test_a_revert_without_room_leaves_both_disks(world):
    server = create(world, vcpus=4)
    revert.save(world.host, server)
    resize.resize(world.host, server, Sizes(vcpus=1))
    resized = world.records.find(server.id)
    world.claims.free_vcpus = 3
    with pytest.raises(NoRoom):
        revert.revert(world.host, server)
    assert world.records.find(server.id) == resized
    assert all(world.host.disks.exists(each) for each in resized.disks)
    world.claims.free_vcpus = 4
    reverted = revert.revert(world.host, server)
    assert reverted.flavor.vcpus == 4
    assert SAVED not in {each.role for each in reverted.disks}


def test_a_claim_that_is_refused_keeps_nothing_from_being_undone(world):
    """Somebody took what was freed."""
    server = create(world, vcpus=4)
    world.moments.begin(Fault(at=2, kinds=frozenset({"step"}), error=Killed()))
    with pytest.raises(Killed):
        revert.save(world.host, server)
    world.moments.begin(NONE)
    world.claims.free_vcpus = 3
    recover(world.host, server)
    found = world.records.find(server.id)
    assert found == server


def test_a_rebuild_goes_on_once_its_guest_may_have_written(world):
    """Killed when its guest ran, which has powered itself off since."""
    server = create(world, start=True)
    at = 2 * rebuild_steps(world).index("start") + 2  # each begins and ends
    world.moments.begin(Fault(at=at, kinds=frozenset({"step"}), error=Killed()))
    with pytest.raises(Killed):
        rebuild.rebuild(world.host, server, OTHER, patience=0)
    world.moments.begin(NONE)
    world.host.domains.power_off(server.id)
    assert recover(world.host, server) == "rebuild was finished"
    found = world.records.find(server.id)
    assert found is not None
    assert found.image.name == OTHER.name


def rebuild_steps(world: World) -> tuple[str, ...]:
    details = rebuild.RebuildDetails(image="", name="", format="raw", ran=True)
    return rebuild.rebuilding(world.host, details).step_names
