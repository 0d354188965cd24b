"""A server moves from one host in memory to another, and something goes wrong at every moment."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.errors import Conflict, HostProblem, LibvirtFailed, UnfitHost, WrongState
from millpond.hosts.deployment import Deployment
from millpond.model.formats import DiskFormat
from millpond.model.move import MigrateDetails, Way
from millpond.model.server import Firmware, Flavor, Server
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.records import journal
from millpond.records.journal import StepMoment
from millpond.records.records import ServerJournal
from millpond.servers import across_hosts, delete, leftovers, power, steps
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from millpond.servers.live_steps import LIVE_MIGRATE, LiveMove, live_migrating
from millpond.servers.move_steps import Move, migrating
from millpond.servers.recover import recover
from tests.support.memory_host import IMAGE, NONE, Fault, Killed, World
from tests.unit.test_interruptions import FAILURES, FAULTS, look_at


class Hosts:
    """Two of one deployment, and a server on the first whose guest has written something."""

    def __init__(
        self, state: Path, *, runs: bool, shares: bool = False, uefi: bool = False
    ) -> None:
        self.alder = World(state, name="alder")
        self.birch = World(state, name="birch", other=self.alder, shares=shares)
        self.way = Way.SHARED if shares else Way.COPY
        self.worlds = {"alder": self.alder, "birch": self.birch}
        deployment = Deployment.__new__(Deployment)
        deployment.locks = SimpleNamespace(hold=nullcontext)  # type: ignore[assignment]
        hosts = {name: world.host for name, world in self.worlds.items()}
        deployment.__dict__ |= {"hosts": hosts, "records": self.alder.records}
        for host in hosts.values():
            host.shared = deployment
        firmware = Firmware.UEFI if uefi else None
        request = ServerRequest(name="web", image=IMAGE, flavor=Flavor(), firmware=firmware)
        self.server = create_server(self.alder.host, request)
        self.alder.guest_writes()
        self.runs = self.should_run = runs
        if not runs:
            power.stop(self.alder.host, self.server, patience=0)

    def let_guest_power_off(self) -> None:
        """By itself: it still should run."""
        power.start(self.alder.host, self.server)
        self.alder.domains.power_off(self.server.id)
        self.should_run = True

    def details(self) -> MigrateDetails:
        disks = self.record.disks
        return MigrateDetails(
            migration="migration",
            source="alder",
            destination="birch",
            here=disks,
            there=disks,
            ways={each.role: self.way for each in disks},
            starts=self.runs,
        )

    def migrate(self) -> None:
        server, details = self.record, self.details()
        move = Move(host=self.alder.host, details=details)
        notes = ServerJournal(self.alder.records, details)
        with self.alder.records.lock(server):
            journal.run(migrating(move), server, notes, self.alder.host.watch)

    @property
    def record(self) -> Server:
        (found,) = self.alder.records.all()
        return found

    def recover(self) -> None:
        server = self.record
        recover(self.worlds[server.host].host, server)

    def attempt(self, fault: Fault, act: Callable[[], object]) -> bool:
        self.alder.moments.begin(fault)
        with suppress(*FAILURES):
            act()
        came = self.alder.moments.has_come
        self.alder.moments.begin(NONE)
        return came

    def check_running_once(self) -> None:
        """At any time: whatever was done, no two guests have copies of one disk, also when hosts
        are started again."""
        left = self.birch if self.record.host == "alder" else self.alder
        assert not left.autostart.on
        assert not (self.alder.domains.live and self.birch.domains.live)
        if self.birch.domains.live:
            assert self.record.host == "birch"
            assert self.way is Way.SHARED or not self.alder.pool.names()

    def check_whole(self) -> None:
        """It is on one host with all that its guest wrote, and nothing of it is on the other."""
        server = self.record
        assert server.operation is None
        assert server.should_run == self.should_run
        world = self.worlds.pop(server.host)
        (other,) = self.worlds.values()
        self.worlds = {world.name: world, other.name: other}
        world.written = self.alder.written
        assert set(self.alder.claims.held) == {server.id}
        assert self.way is Way.SHARED or not other.pool.names()
        assert (other.domains.defined, other.domains.live) == ({}, {})
        assert not other.autostart.on
        assert bool(world.domains.live) == self.runs
        assert [world.holds(each.volume).rstrip(b"\0") for each in server.disks]
        for disk in server.disks:  # what was sent is as long as the disk
            path = world.pool.get(disk.volume).path
            world.contents[path] = world.contents[path].rstrip(b"\0")
        look_at(world, server)


def play(
    state: Path,
    runs: bool,
    first: Fault,
    second: Fault,
    *,
    shares: bool = False,
    uefi: bool = False,
) -> tuple[bool, bool]:
    hosts = Hosts(state, runs=runs, shares=shares, uefi=uefi)
    came = hosts.attempt(first, hosts.migrate)
    hosts.check_running_once()
    again = bool(hosts.record.operation) and hosts.attempt(second, hosts.recover)
    hosts.check_running_once()
    for _ in range(2):
        if hosts.record.operation:
            hosts.recover()
    hosts.check_whole()
    return came, again


def count(
    state: Path,
    runs: bool,
    fault: Callable[[int], Fault],
    *,
    shares: bool = False,
    uefi: bool = False,
) -> int:
    hosts = Hosts(state, runs=runs, shares=shares, uefi=uefi)
    hosts.alder.moments.begin(fault(10**6))
    hosts.migrate()
    return hosts.alder.moments.seen


@pytest.mark.parametrize("runs", [False, True])
def test_in_peace_it_moves(room, runs):
    hosts = Hosts(room, runs=runs)
    hosts.migrate()
    assert hosts.record.host == "birch"
    hosts.check_whole()


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_whatever_goes_wrong_one_host_has_it_whole(room, name, runs):
    total = count(room / "counted", runs, FAULTS[name])
    assert total > 5
    for at in range(1, total + 1):
        assert play(room / str(at), runs, FAULTS[name](at), NONE)[0]


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_the_variables_of_uefi_are_never_lost(room, name, shares):
    total = count(room / "counted", False, FAULTS[name], shares=shares, uefi=True)
    for at in range(1, total + 1):
        fault = FAULTS[name](at)
        assert play(room / str(at), False, fault, NONE, shares=shares, uefi=True)[0]


@pytest.mark.parametrize("runs", [False, True])
def test_a_recovery_that_is_killed_is_recovered(room, runs):
    kill = FAULTS["kill -9"]
    total = count(room / "counted", runs, kill)
    for at in range(1, total + 1, 3):
        for later in range(1, 40, 4):
            if not play(room / f"{at}-{later}", runs, kill(at), kill(later))[1]:
                break


def test_deleted_in_the_middle_it_is_gone_on_both_hosts(room):
    kill = FAULTS["kill -9"]
    for at in range(1, count(room / "counted", False, kill) + 1):
        hosts = Hosts(room / str(at), runs=False)
        hosts.attempt(kill(at), hosts.migrate)
        server = hosts.record
        delete.delete(hosts.worlds[server.host].host, server)
        for world in hosts.worlds.values():
            assert (world.pool.names(), world.domains.defined) == ([], {})
        assert not hosts.alder.claims.held


class Arrived(Hosts):
    """Its guest has left alder while it ran, and whoever moved it died before he wrote that down:
    it waits at birch, with its disks."""

    def __init__(self, state: Path) -> None:
        super().__init__(state, runs=True, shares=True)
        details = self.details()
        server = replace(self.record, host="birch")
        steps.define(self.birch.host, server)
        self.birch.domains.start(server.id, paused=True)
        self.alder.domains.power_off(server.id)
        self.alder.domains.undefine(server.id)
        self.alder.claims.begin_move(server, details.migration)
        notes = ServerJournal(self.alder.records, details)
        notes.enter(self.record, LIVE_MIGRATE, "migrate")

    @property
    def left(self) -> tuple[object, ...]:
        """On both hosts together."""
        worlds = self.worlds.values()
        found = [each for world in worlds for each in (world.domains.defined, world.domains.live)]
        names = [name for world in worlds for name in world.pool.names()]
        return *(each for each in found if each), *names, *self.alder.claims.held


def test_deleted_after_it_has_arrived_it_is_gone_there(room):
    hosts = Arrived(room)
    delete.delete(hosts.alder.host, hosts.record)
    assert hosts.left == ()
    assert not hosts.alder.records.all()


class Stuck(Hosts):
    """Its move can be neither finished nor undone: its host's libvirt fails."""

    left = Arrived.left

    def __init__(self, state: Path) -> None:
        super().__init__(state, runs=False)
        self.alder.host.watch = self.die
        with suppress(Killed):
            self.migrate()
        self.alder.moments.begin(NONE)
        self.alder.host.autostart = SimpleNamespace(put=self.fail)  # type: ignore[misc]

    def die(self, _verb: str, step: str, _moment: StepMoment) -> None:
        if step == "verify":
            self.alder.moments.dead = True
            raise Killed

    def fail(self, _id: str, _on: bool) -> None:
        raise LibvirtFailed("changing autostart", 42, "no domain with this UUID")


def test_deleted_by_force_a_move_that_is_stuck_is_gone_on_both_hosts(room):
    hosts = Stuck(room)
    assert hosts.birch.pool.names()
    with pytest.raises(HostProblem, match="not everything"):
        delete.delete(hosts.alder.host, hosts.record)
    assert hosts.record.operation
    delete.delete(hosts.alder.host, hosts.record, force=True)
    assert hosts.left == ()
    assert not hosts.alder.records.all()


@pytest.mark.parametrize("name", ["alder", "birch"])
def test_deleted_by_force_without_its_host_nothing_is_counted_for_its_move(room, name):
    """Its own host is dead, or not configured any more."""
    hosts = Arrived(room)
    deployment = hosts.alder.host.shared
    deployment.__dict__ |= {"claims": hosts.alder.claims}
    deployment.__dict__["hosts"].pop(name)
    across_hosts.delete(deployment, hosts.record.id, force=True)
    assert not hosts.alder.claims.held
    assert not hosts.alder.records.all()


@pytest.mark.parametrize("name", ["a call fails", "Ctrl-C", "kill -9"])
def test_in_a_pool_that_both_share_no_disk_is_touched(room, name):
    total = count(room / "counted", True, FAULTS[name], shares=True)
    for at in range(1, total + 1):
        assert play(room / str(at), True, FAULTS[name](at), NONE, shares=True)[0]


def test_one_that_should_run_and_is_off_is_started_by_neither_host_on_the_way(room):
    kill = FAULTS["kill -9"]
    for at in range(1, count(room / "counted", False, kill) + 1):
        hosts = Hosts(room / str(at), runs=False)
        hosts.let_guest_power_off()
        hosts.attempt(kill(at), hosts.migrate)
        hosts.check_running_once()
        if hosts.record.operation:
            hosts.recover()
        hosts.check_whole()


def test_one_that_somebody_starts_while_it_is_copied_stays_where_it_is(room):
    hosts = Hosts(room, runs=False)

    def start(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("verify", StepMoment.END):
            hosts.alder.domains.start(hosts.server.id)

    hosts.alder.host.watch = start
    with pytest.raises(WrongState, match="is running; this needs it to be stopped"):
        hosts.migrate()
    assert (hosts.record.host, hosts.record.operation) == ("alder", None)
    assert (hosts.birch.pool.names(), hosts.birch.domains.defined) == ([], {})


def test_a_disk_that_is_one_on_both_hosts_after_all_is_never_removed(room):
    """Nobody has proven that they share the pool, and its listing came late."""
    kill = FAULTS["kill -9"]
    for at in (0, *range(1, 30)):
        hosts = Hosts(room / str(at), runs=False, shares=True)
        hosts.way = Way.COPY
        hosts.attempt(kill(at), hosts.migrate)
        if hosts.record.operation:
            hosts.recover()
        assert hosts.record.host == "alder"
        hosts.way = Way.SHARED
        hosts.check_whole()


def test_a_pool_that_came_to_be_shared_on_the_way_keeps_its_disk(room):
    hosts = Hosts(room, runs=False, shares=True)
    hosts.way = Way.COPY
    (disk,) = hosts.record.disks
    verb = migrating(Move(host=hosts.alder.host, details=hosts.details()))
    (remove,) = (each for each in verb.steps if each.name == "remove")
    remove.do(hosts.record)
    assert hosts.alder.pool.names() == [disk.volume]


class Mounted(Hosts):
    """birch has come to have alder's pool, which is in use, after the move was planned."""

    def __init__(self, state: Path) -> None:
        super().__init__(state, runs=True, shares=True)
        self.way = Way.COPY
        (self.disk,) = self.record.disks
        self.alder.pool.is_written = True

    @property
    def kept(self) -> tuple[list[str], bytes]:
        return self.alder.pool.names(), self.alder.holds(self.disk.volume)


def test_the_disk_of_a_running_guest_is_no_leftover(room):
    hosts = Mounted(room)
    before = hosts.kept
    assert before[0] == [hosts.disk.volume]
    hosts.alder.records.put(leftovers.note(hosts.record, "birch", [hosts.disk]))
    with hosts.alder.records.lock(hosts.record):
        leftovers.sweep(hosts.alder.host, hosts.record)
    assert (hosts.kept, hosts.record.leftovers) == (before, ())


def test_a_live_move_into_its_own_pool_is_refused_and_undone(room):
    hosts = Mounted(room)
    before = hosts.kept
    verb = live_migrating(LiveMove(host=hosts.alder.host, details=hosts.details()))
    (copy,) = (each for each in verb.steps if each.name == "copy")
    with pytest.raises(UnfitHost, match="already"):
        copy.do(hosts.record)
    assert copy.undo
    copy.undo(hosts.record)
    assert hosts.kept == before


def test_the_last_copy_of_a_disk_stays(room):
    """Whatever the record says of it: the file system of the server's own may not be mounted."""
    hosts = Left(room)
    (disk,) = hosts.disks
    hosts.birch.pool.delete(disk.volume)
    hosts.sweep()
    assert hosts.alder.pool.names() == [disk.volume]
    assert len(hosts.record.leftovers) == 1


class Left(Hosts):
    """Somebody was lost after the switch: the server is on birch, and alder has all of it, too."""

    def __init__(self, state: Path) -> None:
        super().__init__(state, runs=False)
        self.disks = self.record.disks
        (self.definition,) = self.alder.domains.defined.values()
        held = {each.volume: self.alder.holds(each.volume) for each in self.disks}
        self.migrate()
        self.alder.domains.define(self.definition)
        for name, content in held.items():
            volume = VolumeSpec(name=name, format=DiskFormat.RAW, capacity=MiB)
            self.alder.pool.create(volume)
            self.alder.pool.upload(name, content)
        self.alder.records.put(leftovers.note(self.record, "alder", self.disks))

    def sweep(self) -> None:
        with self.alder.records.lock(self.record):
            leftovers.sweep(self.birch.host, self.record)

    @property
    def at_alder(self) -> tuple[bool, bool]:
        return bool(self.alder.domains.defined), bool(self.alder.pool.names())


def test_what_was_left_is_removed_and_forgotten(room):
    hosts = Left(room)
    assert hosts.at_alder == (True, True)
    hosts.sweep()
    assert (hosts.at_alder, hosts.record.leftovers) == ((False, False), ())
    hosts.check_whole()


def test_what_was_left_stays_while_a_guest_runs_on_it(room):
    hosts = Left(room)
    hosts.alder.domains.start(hosts.server.id)
    with pytest.raises(Conflict, match="that it left on host 'alder' is running") as error:
        hosts.sweep()
    assert "doctor --repair" in error.value.advised
    assert hosts.at_alder == (True, True)
    assert len(hosts.record.leftovers) == 1


def test_a_server_that_has_come_back_is_no_leftover(room):
    hosts = Left(room)
    hosts.alder.records.put(replace(hosts.record, host="alder"))
    hosts.sweep()
    assert (hosts.at_alder, hosts.record.leftovers) == ((True, True), ())
