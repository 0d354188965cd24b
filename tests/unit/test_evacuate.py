"""A server of a host in memory that is dead comes to another, and something goes wrong at every
moment."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.cli.output import complain_of
from millpond.errors import HostUnreachable, LeftUnfinished, LibvirtFailed
from millpond.libvirt.pools import PoolPlan, PoolWanted
from millpond.model.callbacks import noop
from millpond.model.move import Way
from millpond.records import journal
from millpond.records.records import ServerJournal
from millpond.servers import delete, pause, power
from millpond.servers.drain import drain
from millpond.servers.evacuate import EvacuateRequest, NotEvacuated, decide, evacuate
from millpond.servers.evacuate_steps import evacuating
from millpond.servers.migrate import MigrateRequest
from millpond.servers.move_steps import Move
from tests.support.memory_host import IMAGE, NONE, Domains, Fault, World
from tests.unit.test_interruptions import FAULTS
from tests.unit.test_migrate import Hosts


class Dead:
    """Whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise HostUnreachable("qemu:///system", f"asked for {name}")


class Saved(Hosts):
    """alder has lost its power."""

    def __init__(self, state: Path, *, runs: bool = True) -> None:
        super().__init__(state, runs=runs, shares=True)
        self.way = Way.SHARED
        self.content = dict(self.alder.contents)
        self.alder.domains.live.clear()
        for each in ("domains", "autostart", "networks", "disks", "pools", "domain_records"):
            setattr(self.alder.host, each, Dead())

    def evacuate(self) -> None:
        server, details = self.record, self.details()
        move = Move(host=self.alder.host, details=details)
        notes = ServerJournal(self.alder.records, details)
        with self.alder.records.lock(server):
            journal.run(evacuating(move), server, notes, self.alder.host.watch)

    def check_at_any_time(self) -> None:
        """No guest executes anything at birch before the server is birch's."""
        running = set(self.birch.domains.live) - self.birch.domains.paused
        assert not running or self.record.host == "birch"
        assert not self.birch.autostart.on or self.record.host == "birch"

    def check_settled(self) -> None:
        server = self.record
        assert server.operation is None
        assert server.should_run == self.should_run
        assert self.alder.contents == self.content
        assert set(self.alder.claims.held) == {server.id}
        is_saved = server.host == "birch"
        assert bool(self.birch.domains.defined) == is_saved
        assert bool(self.birch.domains.live) == (is_saved and self.runs)
        assert not self.birch.domains.paused


def play(state: Path, runs: bool, first: Fault, second: Fault) -> tuple[bool, bool]:
    hosts = Saved(state, runs=runs)
    came = hosts.attempt(first, hosts.evacuate)
    hosts.check_at_any_time()
    again = bool(hosts.record.operation) and hosts.attempt(second, hosts.recover)
    hosts.check_at_any_time()
    for _ in range(2):
        if hosts.record.operation:
            hosts.recover()
    hosts.check_settled()
    if hosts.record.host == "alder":
        hosts.evacuate()
    assert hosts.record.host == "birch"
    hosts.check_settled()
    return came, again


def count(state: Path, runs: bool, fault: Any) -> int:
    hosts = Saved(state, runs=runs)
    hosts.alder.moments.begin(fault(10**6))
    hosts.evacuate()
    return hosts.alder.moments.seen


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_whatever_goes_wrong_it_is_saved_or_stays_as_it_was(room, name, runs):
    total = count(room / "counted", runs, FAULTS[name])
    assert total > 5
    for at in range(1, total + 1):
        assert play(room / str(at), runs, FAULTS[name](at), NONE)[0]


def test_a_recovery_that_is_killed_is_recovered(room):
    kill = FAULTS["kill -9"]
    for at in range(1, count(room / "counted", True, kill) + 1, 2):
        for later in range(1, 40, 3):
            if not play(room / f"{at}-{later}", True, kill(at), kill(later))[1]:
                break


def test_deleted_after_the_switch_it_is_gone(room):
    kill = FAULTS["kill -9"]
    for at in range(1, count(room / "counted", True, kill) + 1):
        hosts = Saved(room / str(at))
        hosts.attempt(kill(at), hosts.evacuate)
        server = hosts.record
        if server.host == "birch":
            delete.delete(hosts.birch.host, server)
            assert (hosts.birch.pool.names(), hosts.birch.domains.defined) == ([], {})
            assert not hosts.alder.claims.held


NAMES = ("alder", "birch", "cedar")
REPORTS = {name: SimpleNamespace(uuid=name, shared_pools={"disks": NAMES}) for name in NAMES}


class Choices:
    """The scheduler, which takes what it is told to."""

    def __init__(self) -> None:
        self.host = "birch"
        disabled = SimpleNamespace(add=lambda _name, _why: True)
        self.reporter = SimpleNamespace(
            known=lambda: REPORTS,
            report_if_due=noop,
            report=lambda prove: None,
            disabled=disabled,
        )

    def place(self, _asked: Any, plan: Any, take: Any) -> Any:
        plan(self.host)
        return take(self.host)

    def decide(self, _asked: Any, plan: Any, *, everything: bool) -> Any:
        plan(self.host)
        return SimpleNamespace(choices=[self.host])


class Dying(Hosts):
    """Three hosts that share their pools; any of them may lose its power."""

    def __init__(self, state: Path, *, runs: bool = True, uefi: bool = False) -> None:
        super().__init__(state, runs=runs, shares=True, uefi=uefi)
        self.cedar = World(state, name="cedar", other=self.alder, shares=True)
        self.worlds["cedar"] = self.cedar
        self.deployment: Any = self.alder.host.shared
        self.deployment.hosts["cedar"] = self.cedar.host
        self.cedar.host.shared = self.deployment
        self.choices = Choices()
        images = SimpleNamespace(describe=lambda _id: IMAGE)
        self.deployment.__dict__ |= {"scheduler": self.choices, "images": images}
        self.deployment.__dict__["settings"] = SimpleNamespace(state_path=state)
        for each in self.worlds.values():
            base, disks = (PoolWanted(name=name, path=f"/{name}") for name in ("base", "disks"))
            each.host.__dict__["pool_plan"] = PoolPlan(base=base, disks=disks)

    def die(self, name: str = "alder") -> None:
        world = self.worlds[name]
        world.domains.live.clear()
        for each in ("domains", "autostart", "networks", "domain_records", "libvirtd", "pools"):
            setattr(world.host, each, Dead())

    def decide(self, source: str = "alder") -> Any:
        (found,) = decide(self.deployment, [self.record], EvacuateRequest(source=source))
        return found

    def evacuate(self, source: str = "alder") -> Any:
        request = EvacuateRequest(source=source, fenced=True)
        (found,) = evacuate(self.deployment, [self.record], request)
        return found

    def lose_and_save(self) -> None:
        self.die()
        self.evacuate()

    def kill(self, at: int, act: Callable[[], object]) -> bool:
        """Whether anything was left of it."""
        came = self.attempt(FAULTS["kill -9"](at), act)
        assert came
        return self.record.operation is not None

    def check_saved(self, name: str, *, runs: bool) -> None:
        server, world = self.record, self.worlds[name]
        assert (server.host, server.operation, server.should_run) == (name, None, runs)
        assert bool(world.domains.live) == runs
        assert set(self.alder.claims.held) == {server.id}


def moments_of(hosts: Dying, act: Callable[[], object]) -> int:
    hosts.alder.moments.begin(FAULTS["kill -9"](10**6))
    act()
    return hosts.alder.moments.seen


POWER = {
    "start": (False, lambda host, server: power.start(host, server)),
    "stop": (True, lambda host, server: power.stop(host, server, patience=0)),
    "reboot": (True, lambda host, server: power.reboot(host, server, patience=0)),
    "pause": (True, lambda host, server: pause.pause(host, server)),
    "unpause": (True, lambda host, server: pause.unpause(host, server)),
}


@pytest.mark.parametrize("verb", POWER)
def test_one_that_was_being_switched_on_or_off_is_saved(room, verb):
    runs, act = POWER[verb]

    def make(state: Path) -> tuple[Dying, Callable[[], object]]:
        hosts = Dying(state, runs=runs)
        if verb == "unpause":
            pause.pause(hosts.alder.host, hosts.record)
        return hosts, lambda: act(hosts.alder.host, hosts.record)

    saved = 0
    for at in range(1, moments_of(*make(room / "counted")) + 1):
        hosts, attempt = make(room / str(at))
        if hosts.kill(at, attempt):
            saved += 1
            hosts.die()
            assert hosts.decide() == "birch"
            assert hosts.record.operation.verb == verb
            assert not isinstance(hosts.evacuate(), NotEvacuated)
            hosts.check_saved("birch", runs=verb != "stop")
    assert saved


def test_one_that_was_about_to_move_is_saved_until_its_disks_are_touched(room):
    found = {}
    hosts = Dying(room / "counted")
    for at in range(1, moments_of(hosts, hosts.migrate) + 1):
        hosts = Dying(room / str(at))
        if not hosts.kill(at, hosts.migrate) or hosts.record.host != "alder":
            continue
        hosts.die()
        begun = hosts.record
        step = begun.operation.step
        decided, done = hosts.decide(), hosts.evacuate()
        found[step] = not isinstance(done, NotEvacuated)
        if found[step]:
            assert decided == "birch"
            hosts.check_saved("birch", runs=True)
            continue
        for each in (decided, done):
            assert isinstance(each.error, LeftUnfinished)
            assert "delete" not in each.error.advice
        assert hosts.record == begun
    assert [step for step in found if found[step]] == ["claim", "template", "stop"]
    assert [step for step in found if not found[step]] == ["copy", "verify", "domain", "switch"]


def test_when_the_destination_dies_as_well_a_third_host_takes_it(room):
    steps = set()
    hosts = Dying(room / "counted")
    for at in range(1, moments_of(hosts, hosts.lose_and_save) + 1):
        hosts = Dying(room / str(at))
        if not hosts.kill(at, hosts.lose_and_save):
            continue
        steps.add(hosts.record.operation.step)
        hosts.die("birch")
        hosts.choices.host = "cedar"
        dead = hosts.record.host
        assert hosts.decide(dead) == "cedar"
        assert not isinstance(hosts.evacuate(dead), NotEvacuated)
        hosts.check_saved("cedar", runs=True)
    assert steps == {"claim", "template", "domain", "lock", "switch", "release", "start"}


@pytest.mark.parametrize("shared", [True, False])
def test_variables_of_uefi_are_saved_or_made_again(room, caplog, shared):
    """A server whose disks are saved runs with new ones."""
    hosts = Dying(room, runs=shared, uefi=True)
    volume = hosts.record.get_disk("nvram").volume
    written = hosts.alder.holds(volume)
    if not shared:  # as if they lay on alder alone
        hosts.alder.pool.remove_file(volume)
    hosts.die()
    assert not isinstance(hosts.evacuate(), NotEvacuated)
    hosts.check_saved("birch", runs=shared)
    hosts.birch.pool.refresh()
    assert (hosts.birch.holds(volume) == written) == shared
    assert ("UEFI variables of web were lost" in caplog.text) != shared
    (left,) = hosts.record.leftovers
    assert [each.volume for each in left.disks] == ([] if shared else [volume])


def test_where_a_shared_pool_lacks_variables_something_is_wrong(room):
    """It may not be mounted there: new ones would hide that."""
    hosts = Dying(room, uefi=True)
    hosts.alder.pool.remove_file(hosts.record.get_disk("nvram").volume)
    hosts.die()
    found = hosts.evacuate()
    assert isinstance(found, NotEvacuated)
    assert "nvram, and was shared" in str(found.error)


def fail_to_start(domains: Domains) -> None:
    start = domains.start

    def fail(id: str, *, paused: bool = False) -> None:
        if not paused:
            raise LibvirtFailed("starting it", 1, "no memory")
        start(id, paused=paused)

    domains.start = fail  # type: ignore[method-assign]


def test_one_that_has_left_is_not_said_to_stay(room, capsys):
    """It is the other host's, and cannot be started there."""
    hosts = Dying(room)
    hosts.die()
    fail_to_start(hosts.birch.domains)
    found = hosts.evacuate()
    assert found.server.host == "birch"
    complain_of(found.server, "alder", found.error)
    assert "web is on birch now, and not finished" in capsys.readouterr().err


def test_nor_is_one_that_was_to_be_drained(room):
    hosts = Dying(room)
    fail_to_start(hosts.birch.domains)
    hosts.alder.host.libvirtd.versions = noop  # type: ignore[method-assign]
    (found,) = drain(hosts.deployment, "alder", lambda _server: MigrateRequest(stop=True))
    assert (found.server.host, found.error.code) == ("birch", 1)
