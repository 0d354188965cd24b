"""Every verb, failed, interrupted and killed at every moment of its first run and of its recovery.

Whatever happens: no byte that a guest wrote is lost, a record on which nothing is under way is
true, and a recovery that is left in peace finishes.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from millpond.errors import DetachTimeout, LibvirtFailed, MillpondError, NoSpace, StateNotWritable
from millpond.libvirt.pool import PoolType
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.server import Content, Disk, Firmware, Flavor, Network, NetworkKind, Server
from millpond.model.sizes import MiB
from millpond.records import codec, journal
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import (
    cdrom,
    data_disks,
    delete,
    nics,
    pause,
    power,
    rebuild,
    rename,
    rescue,
    resize,
    revert,
    steps,
)
from millpond.servers.config_drive import GuestConfiguration
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from millpond.servers.grow import grow as grow_disk
from millpond.servers.recover import VERBS, recover
from millpond.servers.rescue import Switching
from millpond.servers.resize import Sizes
from millpond.servers.settle import settle
from millpond.servers.snapshot import kept_disks, snapshotting
from millpond.servers.snapshot_strategies import plan_snapshot
from millpond.servers.streams import find_sockets
from tests.support.memory_host import CONTENT, IMAGE, NONE, VARIABLES, Fault, Killed, World

DATA = "disk.data0"
NIC = Network(
    kind=NetworkKind.NETWORK, source="net1", mac="52:54:00:00:00:50", address="192.168.150.5"
)


def create(
    world: World,
    *,
    start: bool = True,
    image: Image = IMAGE,
    networks: tuple[Network, ...] = (),
    firmware: Firmware | None = None,
) -> Server:
    flavor, installs = Flavor(disk=4 * MiB), image.format is ImageFormat.ISO
    request = ServerRequest(
        name="web",
        image=image,
        flavor=flavor,
        networks=networks,
        installs=installs,
        firmware=firmware,
    )
    return create_server(world.host, request, start=start)


def running(world: World) -> Server:
    return create(world)


def stopped(world: World) -> Server:
    server = running(world)
    world.guest_writes()
    power.stop(world.host, server, patience=0)
    return server


def with_uefi(world: World, *, start: bool = True) -> Server:
    return create(world, start=start, firmware=Firmware.UEFI)


def stopped_with_uefi(world: World) -> Server:
    server = with_uefi(world)
    world.guest_writes()
    power.stop(world.host, server, patience=0)
    return server


def paused(world: World) -> Server:
    server = running(world)
    pause.pause(world.host, server)
    return server


def with_data(made: Callable[[World], Server]) -> Callable[[World], Server]:
    def make(world: World) -> Server:
        server = running(world)
        data_disks.add(world.host, server, MiB)
        world.guest_writes()
        if made is stopped:
            power.stop(world.host, server, patience=0)
        return server

    return make


def with_detached(made: Callable[[World], Server]) -> Callable[[World], Server]:
    def make(world: World) -> Server:
        server = with_data(made)(world)
        data_disks.detach(world.host, server, DATA)
        return server

    return make


def with_nic(made: Callable[[World], Server]) -> Callable[[World], Server]:
    def make(world: World) -> Server:
        server = made(world)
        nics.add(world.host, server, NIC)
        return server

    return make


ISO = replace(IMAGE, name="disc", format=ImageFormat.ISO)


OTHER = replace(IMAGE, name="other")


def configured(world: World) -> Server:
    """With a config drive."""
    request = ServerRequest(
        name="web", image=IMAGE, flavor=Flavor(disk=4 * MiB), guest=GuestConfiguration()
    )
    return create_server(world.host, request)


def streaming(world: World) -> Server:
    """While its template arrived, which is whole now."""
    world.streams = True
    server = running(world)
    world.guest_writes()
    world.streams = False
    return server


def _settle(world: World, server: Server) -> None:
    settle(world.host, server)


def do_rescue(world: World, server: Server) -> None:
    rescue.rescue(world.host, server, OTHER, Switching())


def rescued(made: Callable[[World], Server]) -> Callable[[World], Server]:
    def make(world: World) -> Server:
        server = running(world)
        world.guest_writes()
        do_rescue(world, server)
        world.guest_writes()
        if made is stopped:
            power.stop(world.host, server, patience=0)
        return server

    return make


def with_drive(made: Callable[[World], Server]) -> Callable[[World], Server]:
    """With something in it."""

    def make(world: World) -> Server:
        server = stopped(world)
        cdrom.insert(world.host, server, ISO)
        if made is running:
            power.start(world.host, server)
        return server

    return make


def with_empty_drive(world: World) -> Server:
    server = with_drive(running)(world)
    cdrom.eject(world.host, server)
    return server


def interrupted(
    made: Callable[[World], Server], act: Callable[[World, Server], object], at: int
) -> Callable[[World], Server]:
    """Killed at some step of something else."""

    def make(world: World) -> Server:
        server = made(world)
        world.moments.begin(Fault(at=at, kinds=frozenset({"step"}), error=Killed()))
        with pytest.raises(Killed):
            act(world, server)
        world.moments.begin(NONE)
        world.guest_writes()
        return server

    return make


def snapshot(world: World, server: Server) -> None:
    """As snapshot.snapshot() does, with a copy that nobody keeps."""
    host = world.host
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        details = plan_snapshot(host, current, kept_disks(current))
        assert details is not None
        verb = snapshotting(host, details, lambda _server: world.guest_writes())
        journal.run(verb, current, ServerJournal(host.records, details), host.watch)


def grow(world: World, server: Server) -> None:
    grow_disk(world.host, server, "disk", 8 * MiB)


def grown_from_saved(world: World) -> Server:
    """Resized so that it can be reverted, and written to since."""
    host, server = world.host, create(world, start=False)
    revert.save(host, server)
    resize.resize(host, server, Sizes(vcpus=2))
    grow(world, server)
    power.start(host, server)
    world.guest_writes()
    power.stop(host, server, patience=0)
    return server


def no_server(_world: World) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    verb: str
    make: Callable[[World], Server | None]
    act: Callable[[World, Server], object]
    type: PoolType = PoolType.DIR
    backed: bool = False
    """Disks are overlays of their templates."""

    def world(self, state: Path) -> World:
        return World(state, self.type, backed=self.backed)

    @property
    def takes_away(self) -> bool:
        return self.verb in ("delete", "disk remove", "rebuild", "unrescue", "resize revert")


def _delete(world: World, server: Server) -> None:
    delete.delete(world.host, server)


SCENARIOS = {
    "create": Scenario(verb="create", make=no_server, act=lambda world, _: create(world)),
    "create, not started": Scenario(
        verb="create", make=no_server, act=lambda world, _: create(world, start=False)
    ),
    "create with a fixed address": Scenario(
        verb="create", make=no_server, act=lambda world, _: create(world, networks=(NIC,))
    ),
    "create with UEFI": Scenario(
        verb="create", make=no_server, act=lambda world, _: with_uefi(world)
    ),
    "create with UEFI, not started": Scenario(
        verb="create", make=no_server, act=lambda world, _: with_uefi(world, start=False)
    ),
    "delete with UEFI": Scenario(verb="delete", make=with_uefi, act=_delete),
    "delete with UEFI, never started": Scenario(
        verb="delete", make=lambda world: with_uefi(world, start=False), act=_delete
    ),
    "start with UEFI": Scenario(
        verb="start",
        make=stopped_with_uefi,
        act=lambda world, each: power.start(world.host, each),
    ),
    "rebuild with UEFI": Scenario(
        verb="rebuild",
        make=with_uefi,
        act=lambda world, each: rebuild.rebuild(world.host, each, IMAGE, patience=0),
    ),
    "rename with UEFI": Scenario(
        verb="rename",
        make=stopped_with_uefi,
        act=lambda world, each: rename.rename(world.host, each, "db"),
    ),
    "delete with a fixed address": Scenario(
        verb="delete", make=lambda world: create(world, networks=(NIC,)), act=_delete
    ),
    "delete": Scenario(verb="delete", make=with_data(running), act=_delete),
    "delete over a snapshot": Scenario(
        verb="delete", make=interrupted(running, snapshot, 5), act=_delete
    ),
    "delete over a grow by copy": Scenario(
        verb="delete", make=interrupted(stopped, grow, 5), act=_delete, type=PoolType.LOGICAL
    ),
    "start": Scenario(
        verb="start", make=stopped, act=lambda world, each: power.start(world.host, each)
    ),
    "stop": Scenario(
        verb="stop", make=running, act=lambda world, each: power.stop(world.host, each, patience=0)
    ),
    "reboot": Scenario(
        verb="reboot",
        make=running,
        act=lambda world, each: power.reboot(world.host, each, patience=0),
    ),
    "pause": Scenario(
        verb="pause", make=running, act=lambda world, each: pause.pause(world.host, each)
    ),
    "unpause": Scenario(
        verb="unpause", make=paused, act=lambda world, each: pause.unpause(world.host, each)
    ),
    "grow": Scenario(verb="grow", make=stopped, act=grow),
    "grow while it runs": Scenario(verb="grow", make=running, act=grow),
    "grow by copy": Scenario(verb="grow", make=stopped, act=grow, type=PoolType.LOGICAL),
    "rebuild": Scenario(
        verb="rebuild",
        make=stopped,
        act=lambda world, each: rebuild.rebuild(world.host, each, OTHER, patience=0),
    ),
    "rebuild while it runs": Scenario(
        verb="rebuild",
        make=with_data(running),
        act=lambda world, each: rebuild.rebuild(world.host, each, OTHER, patience=0),
    ),
    "rebuild with a config drive": Scenario(
        verb="rebuild",
        make=configured,
        act=lambda world, each: rebuild.rebuild(world.host, each, IMAGE, patience=0),
    ),
    "delete over a rebuild": Scenario(
        verb="delete",
        make=interrupted(
            running,
            lambda world, each: rebuild.rebuild(world.host, each, IMAGE, patience=0),
            7,
        ),
        act=_delete,
    ),
    "rescue": Scenario(
        verb="rescue", make=stopped, act=lambda world, each: do_rescue(world, each)
    ),
    "rescue while it runs": Scenario(
        verb="rescue", make=with_data(running), act=lambda world, each: do_rescue(world, each)
    ),
    "unrescue": Scenario(
        verb="unrescue",
        make=rescued(stopped),
        act=lambda world, each: rescue.unrescue(world.host, each, Switching()),
    ),
    "unrescue while it runs": Scenario(
        verb="unrescue",
        make=rescued(running),
        act=lambda world, each: rescue.unrescue(world.host, each, Switching()),
    ),
    "stop in rescue": Scenario(
        verb="stop",
        make=rescued(running),
        act=lambda world, each: power.stop(world.host, each, patience=0),
    ),
    "start in rescue": Scenario(
        verb="start",
        make=rescued(stopped),
        act=lambda world, each: power.start(world.host, each),
    ),
    "delete over a rescue": Scenario(
        verb="delete", make=interrupted(running, lambda *each: do_rescue(*each), 7), act=_delete
    ),
    "rename": Scenario(
        verb="rename",
        make=stopped,
        act=lambda world, each: rename.rename(world.host, each, "db"),
    ),
    "resize": Scenario(
        verb="resize",
        make=stopped,
        act=lambda world, each: resize.resize(world.host, each, Sizes(vcpus=2, memory=64 * MiB)),
    ),
    "resize save": Scenario(
        verb="resize save",
        make=lambda world: create(world, start=False),
        act=lambda world, each: revert.save(world.host, each),
    ),
    "resize save by libvirt": Scenario(
        verb="resize save",
        make=lambda world: create(world, start=False),
        act=lambda world, each: revert.save(world.host, each),
        type=PoolType.LOGICAL,
    ),
    "resize confirm": Scenario(
        verb="resize confirm",
        make=grown_from_saved,
        act=lambda world, each: revert.confirm(world.host, each),
    ),
    "resize revert": Scenario(
        verb="resize revert",
        make=grown_from_saved,
        act=lambda world, each: revert.revert(world.host, each),
    ),
    "delete after a resize": Scenario(verb="delete", make=grown_from_saved, act=_delete),
    "disk add": Scenario(
        verb="disk add",
        make=stopped,
        act=lambda world, each: data_disks.add(world.host, each, MiB),
    ),
    "disk add while it runs": Scenario(
        verb="disk add",
        make=running,
        act=lambda world, each: data_disks.add(world.host, each, MiB),
    ),
    "disk remove": Scenario(
        verb="disk remove",
        make=with_data(stopped),
        act=lambda world, each: data_disks.remove(world.host, each, DATA),
    ),
    "disk remove while it runs": Scenario(
        verb="disk remove",
        make=with_data(running),
        act=lambda world, each: data_disks.remove(world.host, each, DATA),
    ),
    "disk remove, detached": Scenario(
        verb="disk remove",
        make=with_detached(running),
        act=lambda world, each: data_disks.remove(world.host, each, DATA),
    ),
    "disk detach": Scenario(
        verb="disk detach",
        make=with_data(stopped),
        act=lambda world, each: data_disks.detach(world.host, each, DATA),
    ),
    "disk detach while it runs": Scenario(
        verb="disk detach",
        make=with_data(running),
        act=lambda world, each: data_disks.detach(world.host, each, DATA),
    ),
    "disk attach": Scenario(
        verb="disk attach",
        make=with_detached(stopped),
        act=lambda world, each: data_disks.attach(world.host, each, DATA),
    ),
    "disk attach while it runs": Scenario(
        verb="disk attach",
        make=with_detached(running),
        act=lambda world, each: data_disks.attach(world.host, each, DATA),
    ),
    "grow of a detached disk": Scenario(
        verb="grow",
        make=with_detached(running),
        act=lambda world, each: grow_disk(world.host, each, DATA, 2 * MiB),
    ),
    "create from an ISO": Scenario(
        verb="create", make=no_server, act=lambda world, _: create(world, image=ISO)
    ),
    "cdrom insert": Scenario(
        verb="cdrom insert",
        make=stopped,
        act=lambda world, each: cdrom.insert(world.host, each, ISO),
    ),
    "cdrom insert while it runs": Scenario(
        verb="cdrom insert",
        make=with_empty_drive,
        act=lambda world, each: cdrom.insert(world.host, each, ISO),
    ),
    "cdrom eject": Scenario(
        verb="cdrom eject",
        make=with_drive(stopped),
        act=lambda world, each: cdrom.eject(world.host, each),
    ),
    "cdrom eject while it runs": Scenario(
        verb="cdrom eject",
        make=with_drive(running),
        act=lambda world, each: cdrom.eject(world.host, each),
    ),
    **{
        f"nic {name}{' while it runs' if made is running else ''}": Scenario(
            verb=f"nic {name}", make=make(made), act=act
        )
        for made in (stopped, running)
        for name, make, act in (
            ("add", lambda made: made, lambda world, each: nics.add(world.host, each, NIC)),
            ("remove", with_nic, lambda world, each: nics.remove(world.host, each, NIC.mac)),
        )
    },
    "snapshot": Scenario(verb="snapshot", make=running, act=snapshot),
    "snapshot of all disks": Scenario(verb="snapshot", make=with_data(running), act=snapshot),
    "snapshot of all disks, one detached": Scenario(
        verb="snapshot", make=with_detached(running), act=snapshot
    ),
    "settle": Scenario(verb="settle", make=streaming, act=_settle, backed=True),
    "delete over a snapshot of all disks": Scenario(
        verb="delete", make=interrupted(with_data(running), snapshot, 5), act=_delete
    ),
}

WRITES, STEPS = frozenset({"write"}), frozenset({"step"})
ANYWHERE = frozenset({"write", "call", "step"})

FAULTS = {
    "one write fails": lambda at: Fault(
        at=at, kinds=WRITES, error=StateNotWritable(Path("/state"), "Input/output error")
    ),
    "no space from then on": lambda at: Fault(
        at=at, kinds=WRITES, error=NoSpace("/state", "1 B", "0 B"), lasting=True
    ),
    "a call fails": lambda at: Fault(
        at=at, kinds=frozenset({"call"}), error=LibvirtFailed("something", 1, "no")
    ),
    "Ctrl-C": lambda at: Fault(at=at, kinds=ANYWHERE, error=KeyboardInterrupt()),
    "SIGTERM": lambda at: Fault(at=at, kinds=STEPS, error=SystemExit(143)),
    "kill -9": lambda at: Fault(at=at, kinds=ANYWHERE, error=Killed()),
}
FAILURES = (MillpondError, KeyboardInterrupt, SystemExit, Killed)


def play(scenario: Scenario, state: Path, first: Fault, second: Fault) -> tuple[bool, bool]:
    """The verb with one fault, its recovery with the other, and a recovery in peace. Whether each
    fault came."""
    world = scenario.world(state)
    server = scenario.make(world)
    came = _attempt(world, first, lambda: scenario.act(world, server))
    look(world, scenario)
    left = _left(world)
    came_again = bool(left) and _attempt(world, second, lambda: recover(world.host, left))
    look(world, scenario)
    for _ in range(2):
        if left := _left(world):
            recover(world.host, left)
    assert _left(world) is None
    look(world, scenario)
    return came, came_again


def _attempt(world: World, fault: Fault, act: Callable[[], object]) -> bool:
    world.moments.begin(fault)
    with suppress(*FAILURES):
        act()
    came = world.moments.has_come
    world.moments.begin(NONE)
    world.guest_writes()
    return came


def _left(world: World) -> Server | None:
    return next((each for each in world.records.all() if each.operation), None)


def look(world: World, scenario: Scenario) -> None:
    """What the records say is there is there, and nothing else; and all that guests wrote."""
    servers = world.records.all()
    kept = {disk.volume for each in servers for disk in each.disks}
    if not scenario.takes_away:
        assert set(world.written) <= kept, "a disk that a guest has written to is gone"
    if any(each.operation for each in servers):
        return
    world.pool.refresh()
    variables = {disk.volume for each in servers for disk in each.disks if is_variables(disk)}
    assert set(world.pool.names()) | variables == kept
    fixed = {nic.mac for each in servers for nic in each.networks if nic.address}
    assert set(world.networks.reserved) == fixed
    assert set(world.domains.defined) == set(world.claims.held) == {each.id for each in servers}
    for each in servers:
        look_at(world, each)


def is_variables(disk: Disk) -> bool:
    """Which are made as their server first starts."""
    return disk.content is Content.NVRAM


def look_at(world: World, server: Server) -> None:
    domains = world.domains
    for disk in server.disks:
        if is_variables(disk):
            look_at_variables(world, server, disk)
            continue
        if disk.content is Content.CONFIG:
            assert len(world.holds(disk.volume)) == disk.size
            continue
        begins = CONTENT if disk.template and not disk.overlay else b""
        written = world.written.get(disk.volume, b"")
        assert sorted(world.holds(disk.volume)) == sorted(begins + written)
        assert world.pool.get(disk.volume).capacity == disk.size
    volumes = [disk.volume for disk in server.disks if disk.is_attached]
    for each in (domains.defined, domains.live):
        if found := each.get(server.id):
            full = [disk for disk in found.disks if disk.source]
            assert [Path(world.path_of(disk)).name for disk in full] == volumes
            assert len(found.disks) - len(full) == bool(server.cdrom and not server.cdrom.image)
    macs = [each.mac for each in server.networks]
    for each in (domains.defined, domains.live):
        if found := each.get(server.id):
            assert [nic.mac for nic in found.interfaces] == macs
    marked = domains.defined[server.id].record
    assert marked
    copied = codec.decode_server(marked.record.encode(), Path())
    assert copied == replace(without_operation(server), should_run=False)
    assert (server.id in world.autostart.on) == server.should_run
    assert world.claims.held[server.id] == sum(disk.size for disk in server.disks)


def look_at_variables(world: World, server: Server, disk: Disk) -> None:
    for each in (world.domains.defined, world.domains.live):
        if found := each.get(server.id):
            assert found.nvram == f"{world.pool.path}/{disk.volume}"
    if disk.volume in world.written:
        assert world.holds(disk.volume) == VARIABLES + world.written[disk.volume]


def moments(scenario: Scenario, state: Path, fault: Callable[[int], Fault]) -> int:
    """How many there are at which it can come."""
    world = scenario.world(state)
    server = scenario.make(world)
    world.moments.begin(fault(10**6))
    scenario.act(world, server)
    return world.moments.seen


def test_every_verb_is_here():
    """But those between hosts (test_migrate.py, test_live_migrate.py, test_evacuate.py), and those
    of files (test_transition.py)."""
    elsewhere = {"migrate", "live migrate", "evacuate", "transition", "live transition"}
    assert {each.verb for each in SCENARIOS.values()} == set(VERBS) - elsewhere


@pytest.mark.parametrize("name", SCENARIOS)
def test_in_peace_it_does_what_it_is_for(room, name):
    assert play(SCENARIOS[name], room, NONE, NONE) == (True, False)


def test_settled_it_reads_from_the_volume_alone(room):
    world = SCENARIOS["settle"].world(room)
    server = streaming(world)
    (disk,) = world.domains.live[server.id].disks
    assert find_sockets(disk)
    assert settle(world.host, server)
    assert not settle(world.host, server)
    (disk,) = world.domains.live[server.id].disks
    assert not find_sockets(disk)
    (defined,) = world.domains.defined[server.id].disks
    assert (defined.type, defined.backing.type) == ("volume", "volume")


def test_a_guest_that_waits_while_its_server_settles_is_never_left_waiting(room):
    """Killed at any call, one of which has paused it."""
    scenario, waited = SCENARIOS["settle"], 0
    calls = frozenset({"call"})
    count = moments(scenario, room / "count", lambda at: Fault(at=at, kinds=calls, error=Killed()))
    for at in range(1, count + 1):
        world = scenario.world(room / f"{at}")
        server = scenario.make(world)
        world.moments.begin(Fault(at=at, kinds=calls, error=Killed()))
        with pytest.raises(Killed):
            scenario.act(world, server)
        waited += server.id in world.domains.paused
        world.moments.begin(NONE)
        if left := _left(world):
            recover(world.host, left)
        assert world.domains.state(server.id) == "running"
    assert waited


def slow_removal(room: Path) -> tuple[World, Server, Scenario]:
    """The guest has not let the disk go in time."""
    scenario = SCENARIOS["disk remove while it runs"]
    world = scenario.world(room)
    server = scenario.make(world)
    assert server
    world.domains.holds_on = True
    with pytest.raises(DetachTimeout):
        scenario.act(world, server)
    left = _left(world)
    assert left
    assert left.operation
    assert (left.operation.verb, left.operation.step) == ("disk remove", "detach")
    return world, left, scenario


@pytest.mark.parametrize("again", ["doctor", "the command"])
def test_a_disk_that_a_guest_lets_go_late_is_removed(room, again):
    world, left, scenario = slow_removal(room)
    world.domains.let_go(left.id, "vdb")
    world.guest_writes()
    recover(world.host, left) if again == "doctor" else scenario.act(world, left)
    assert [disk.role for disk in world.records.all()[0].disks] == ["disk"]
    look(world, scenario)


def test_a_guest_that_never_lets_a_disk_go_can_be_stopped(room):
    world, left, scenario = slow_removal(room)
    with pytest.raises(DetachTimeout):
        recover(world.host, left)
    power.stop(world.host, left, patience=0)
    scenario.act(world, left)
    assert [disk.role for disk in world.records.all()[0].disks] == ["disk"]
    look(world, scenario)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_and_no_record_lies(room, name, kind):
    scenario, fault = SCENARIOS[name], FAULTS[kind]
    for at in range(1, moments(scenario, room / "count", fault) + 1):
        state = room / f"{at}"
        came, _ = play(scenario, state, fault(at), NONE)
        assert came


@pytest.mark.parametrize(
    "again", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.full) for n in range(4, 16))]
)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nor_when_its_undo_is_interrupted(room, name, again):
    """Ctrl-C, and once more before it was undone."""

    def pressed(at: int) -> Fault:
        return Fault(at=at, kinds=ANYWHERE, error=KeyboardInterrupt(), again=again)

    scenario = SCENARIOS[name]
    for at in range(1, moments(scenario, room / "count", pressed) + 1):
        play(scenario, room / f"{at}", pressed(at), NONE)


@pytest.mark.parametrize("again", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    "kinds", [STEPS, pytest.param(ANYWHERE, marks=pytest.mark.full)], ids=["step", "moment"]
)
def test_nor_when_the_recovery_meets_it_again(room, kinds, name, again):
    """Killed at every step, and then the recovery at every moment."""

    def killed(at: int) -> Fault:
        return Fault(at=at, kinds=kinds, error=Killed())

    scenario = SCENARIOS[name]
    for at in range(1, moments(scenario, room / "count", killed) + 1):
        second, more = 1, True
        while more:
            state = room / f"{at}-{second}"
            _, more = play(scenario, state, killed(at), FAULTS[again](second))
            second += 1


def test_doctor_finishes_a_delete_where_there_is_no_space(room):
    scenario = SCENARIOS["delete"]
    world = scenario.world(room)
    server = scenario.make(world)
    world.moments.begin(Fault(at=3, kinds=STEPS, error=Killed()))
    with pytest.raises(Killed):
        scenario.act(world, server)
    world.moments.begin(FAULTS["no space from then on"](1))
    recover(world.host, server)
    assert world.records.all() == []
    look(world, scenario)
