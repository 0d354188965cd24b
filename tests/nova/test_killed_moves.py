"""nova-compute dies by SIGKILL in the middle of a move, at either end of it. When it is back, the
server goes on, or is in ERROR and its fault names the step and says what to do; and then nothing
is left, and nothing lost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from openstack.compute.v2.server import Server

from tests.nova.conftest import Offer, create
from tests.nova.domains import ALL, has_domain, roles, volumes
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

SOURCE, DESTINATION = "source", "destination"
SOON = {"DEFAULT": {"rpc_response_timeout": 20}}
"""Seconds after which one nova-compute takes the other one for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Two hosts, and a server on the first."""

    cloud: Cloud
    user: CloudUser
    weir: Deployment
    dam: Deployment
    larger: str
    offer: Offer

    def deployment(self, host: str) -> Deployment:
        return {each.compute.host: each for each in (self.weir, self.dam)}[host]

    def libvirtd(self, host: str) -> PrivateLibvirtd:
        return self.deployment(host).compute.hypervisor

    def hosts(self) -> tuple[str, str]:
        return self.weir.compute.host, self.dam.compute.host

    def migrate(self, server: Server) -> None:
        self.cloud.admin.compute.migrate_server(server, host=self.dam.compute.host)

    def await_migrated(self, server: Server) -> None:
        self.migrate(server)
        self.user.wait(server, "VERIFY_RESIZE")

    def migrate_live(self, server: Server) -> None:
        host = self.dam.compute.host
        self.cloud.admin.compute.live_migrate_server(server, host=host, block_migration="auto")

    def resize(self, server: Server) -> None:
        self.user.connection.compute.resize_server(server, self.larger)

    def await_resized(self, server: Server) -> None:
        self.resize(server)
        self.user.wait(server, "VERIFY_RESIZE")

    def confirm(self, server: Server) -> None:
        self.user.connection.compute.confirm_server_resize(server)

    def revert(self, server: Server) -> None:
        self.user.connection.compute.revert_server_resize(server)


def nothing(_scene: Scene, _server: Server) -> None:
    """The move is the first thing that the server meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    before: Callable[[Scene, Server], None] = nothing
    begin: Callable[[Scene, Server], None]
    stays: bool = False
    """On its host."""


MOVES = {
    "resize": Move(begin=Scene.resize, stays=True),
    "confirm resize": Move(before=Scene.await_resized, begin=Scene.confirm, stays=True),
    "revert resize": Move(before=Scene.await_resized, begin=Scene.revert, stays=True),
    "migrate": Move(begin=Scene.migrate),
    "confirm migration": Move(before=Scene.await_migrated, begin=Scene.confirm),
    "revert migration": Move(before=Scene.await_migrated, begin=Scene.revert),
    "live migrate": Move(begin=Scene.migrate_live),
}

DEATHS = [
    ("revert migration", SOURCE, "driver finish_revert_migration begin"),
    ("confirm migration", SOURCE, "disk delete end"),
    ("live migrate", SOURCE, "live send end"),
    ("resize", SOURCE, "move save end"),
    ("resize", SOURCE, "driver finish_migration end"),
    ("confirm resize", SOURCE, "disk delete end"),
    ("revert resize", SOURCE, "driver finish_revert_migration begin"),
    ("migrate", SOURCE, "move copy end"),
    ("migrate", DESTINATION, "driver finish_migration begin"),
    ("revert migration", DESTINATION, "disk delete end"),
    ("live migrate", SOURCE, "driver post_live_migration begin"),
    ("live migrate", DESTINATION, "driver pre_live_migration end"),
]


@pytest.fixture(scope="module")
def impatient(millpond_driver: Deployment, other_host: Deployment) -> Iterator[None]:
    for each in (millpond_driver, other_host):
        each.start(extra=SOON)
    yield
    for each in (millpond_driver, other_host):
        each.start()


@pytest.fixture
def scene(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    other_host: Deployment,
    impatient: None,
    larger: str,
) -> Iterator[Scene]:
    cloud.offer_host(other_host.compute, offered=False)
    yield Scene(
        cloud=cloud,
        user=user,
        weir=millpond_driver,
        dam=other_host,
        larger=larger,
        offer=offer,
    )
    cloud.offer_host(other_host.compute, offered=False)
    for each in (millpond_driver, other_host):
        if each.is_mortal:
            each.restart()
    user.clear()


@pytest.mark.parametrize(("name", "end", "step"), DEATHS)
def test_a_server_survives(scene: Scene, name: str, end: str, step: str) -> None:
    move = MOVES[name]
    server = create(scene.user, scene.offer, "qcow2")
    if not move.stays:
        scene.cloud.offer_host(scene.dam.compute)
    move.before(scene, server)
    dying = scene.weir if end == SOURCE else scene.dam
    dying.run_until(*step.split())
    move.begin(scene, server)
    dying.compute.await_end()
    dying.run()
    await_rest(scene, server)
    go_on(scene, server)
    is_whole(scene, server, 2)


def test_a_server_survives_its_evacuation(scene: Scene) -> None:
    """Its disks are on its own host alone, which comes back when the other one has ended while it
    recreated the server from its image."""
    server = create(scene.user, scene.offer, "qcow2")
    weir, dam = scene.hosts()
    scene.cloud.offer_host(scene.dam.compute)
    scene.weir.compute.kill()
    scene.cloud.force_down(scene.weir.compute)
    scene.dam.run_until("disk", "make", "end")
    scene.cloud.admin.compute.evacuate_server(server, host=dam)
    scene.dam.compute.await_end()
    assert roles(scene.libvirtd(dam), server)
    scene.dam.run()
    fault = scene.user.wait(server, "ERROR").fault["message"]
    assert f"nova-compute on host {dam!r} ended at the step 'rebuild_spawning'" in fault
    assert roles(scene.libvirtd(dam), server) == set()
    assert scene.cloud.consumers() == {weir: {server.id}, dam: set()}
    scene.weir.run()
    scene.cloud.force_down(scene.weir.compute, forced=False)
    scene.cloud.admin.compute.reset_server_state(server, "active")
    scene.user.reboot(server, "HARD")
    assert scene.cloud.host_of(server.id) == weir
    is_whole(scene, server, 2)


def await_rest(scene: Scene, server: Server) -> None:
    """Until Nova does nothing with it any more. Of a confirmation no state of the server tells."""

    def rests() -> bool:
        under_way = scene.cloud.status_of_move(server.id) in ("confirming", "reverting")
        return not under_way and not scene.user.look(server).task_state

    scene.user.await_truth(rests)


def go_on(scene: Scene, server: Server) -> None:
    """As its state and its fault say."""
    found = scene.user.look(server)
    if found.status == "ERROR":
        message = found.fault["message"]
        assert "nova-compute ended at the step '" in message, found.fault
        assert "set the server's state to active and reboot it hard" in message
        scene.cloud.admin.compute.reset_server_state(server, "active")
        scene.user.reboot(server, "HARD")
    elif found.status == "VERIFY_RESIZE":
        scene.user.confirm(server)
    else:
        assert found.status == "ACTIVE"
        scene.user.reboot(server, "HARD")


def is_whole(scene: Scene, server: Server, boots: int) -> None:
    """What it wrote is on its disk, nothing of it is anywhere else, and Placement knows what Nova
    knows."""
    shown = scene.user.await_console(server, "READY")
    assert "BOOTS 0001" not in shown
    here = scene.cloud.host_of(server.id)
    (other,) = {*scene.hosts()} - {here}
    for each in (scene.weir, scene.dam):
        assert each.problems("--repair") == []
    assert {each.removesuffix(".saved") for each in roles(scene.libvirtd(here), server)} == ALL
    assert len(roles(scene.libvirtd(here), server)) == len(ALL)
    assert roles(scene.libvirtd(other), server) == set()
    assert not has_domain(scene.libvirtd(other), server)
    assert scene.cloud.consumers() == {here: {server.id}, other: set()}
    scene.user.delete(server)
    for host in scene.hosts():
        assert volumes(scene.libvirtd(host)) == set()
        assert not has_domain(scene.libvirtd(host), server)
    assert not any(scene.cloud.consumers().values())
