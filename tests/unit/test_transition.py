"""Disks out of Nova's legacy layout with a fault at every moment: one whole copy is always there,
and the record says which."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.errors import VolumeExists, VolumeNotFound
from millpond.legacy.storage import LegacyStorage
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.model.formats import Backend, DiskFormat
from millpond.model.layer import VolumeSource
from millpond.model.server import Content, Disk, Server
from millpond.model.transition import Way
from millpond.model.volume import Volume
from millpond.records import codec
from millpond.records.records import without_operation
from millpond.servers import steps, transition
from millpond.servers.recover import recover
from millpond.servers.transition import TransitRequest
from millpond.servers.transition_steps import Transit
from millpond.xml.domain import SourceXml
from tests.support.host_with import host_with
from tests.support.memory_host import NONE, Fault, Killed, World
from tests.unit.samples import server as sample
from tests.unit.test_interruptions import ANYWHERE, FAILURES, FAULTS

ROLES = {"disk": Content.IMAGE, "disk.swap": Content.SWAP, "disk.config": Content.CONFIG}


class DirectoryPool:
    """As libvirt has one: it knows what it was told of, and what a refresh finds."""

    name, type_, local = "disks", PoolType.DIR, True
    capabilities = CAPABILITIES[PoolType.DIR]

    def __init__(self, path: Path, moments: Callable[[str], None]) -> None:
        self.path = str(path)
        self._known: set[str] = set()
        self._moments = moments

    def create(self, spec):
        with self._moments.around("call"):
            path = Path(self.path) / spec.name
            if path.exists():
                raise VolumeExists(self.name, spec.name)
            path.write_bytes(b"")
            self._known.add(spec.name)

    def delete(self, name):
        with self._moments.around("call"):
            if name not in self._known:
                raise VolumeNotFound(self.name, name)
            self._known.discard(name)
            (Path(self.path) / name).unlink(missing_ok=True)

    def find(self, name):
        path = Path(self.path) / name
        known = name in self._known
        return known and Volume(
            pool=self.name, name=name, path=str(path), capacity=0, allocation=0
        )

    def source(self, name):
        return VolumeSource(pool=self.name, volume=name)

    def refresh(self):
        self._known = {each.name for each in Path(self.path).iterdir()}


class BlockJobs:
    """QEMU's: a copy follows what the guest writes until it takes the disk's place."""

    def __init__(self, world: "LegacyWorld") -> None:
        self._world = world
        self.copies: dict[str, Path] = {}

    def size(self, _id, _target):
        return 1

    def mirror(self, _id, target, chain):
        with self._world.moments.around("call"):
            self.copies[target] = Path(chain[0].source.path)
        self._sync(target)

    def is_mirrored(self, _id, target):
        self._sync(target)
        return True

    def remaining(self, _id, target):
        self._sync(target)
        return 0

    def stop_mirroring(self, _id, target):
        with self._world.moments.around("call"):
            self.copies.pop(target, None)

    def pivot(self, id, target):
        with self._world.moments.around("call"):
            path = self.copies.pop(target)
            for each in self._world.domains.both():
                disks = tuple(
                    replace(old, type="file", source=SourceXml(file=str(path)))
                    if old.target == target
                    else old
                    for old in each[id].disks
                )
                each[id] = replace(each[id], disks=disks)

    def _sync(self, target):
        (domain,) = self._world.domains.live.values()
        self.copies[target].write_bytes(self._world.file(domain.disk(target)).read_bytes())


class LegacyWorld(World):
    def __init__(self, state: Path) -> None:
        self.instances = state / "instances"
        self.instances.mkdir(parents=True)
        (state / "disks").mkdir()
        super().__init__(state)
        self.directory = DirectoryPool(state / "disks", self.moments)
        pools = SimpleNamespace(
            ensure=lambda _name: self.directory,
            base=SimpleNamespace(path=str(state / "base"), name="base"),
        )
        legacy = LegacyStorage(state / "base")
        storage = SimpleNamespace(
            chain=lambda disk: (
                legacy.chain(disk)
                if disk.path
                else (SimpleNamespace(source=self.directory.source(disk.volume), format="raw"),)
            )
        )
        self.jobs = BlockJobs(self)
        settings = SimpleNamespace(instances_path=self.instances)
        self.host = host_with(
            self.host,
            pools=pools,
            disks=storage,
            legacy_storage=legacy,
            nova_bases=None,
            block_jobs=self.jobs,
            probe_local_files=lambda: True,
            pool_plan=SimpleNamespace(
                base=pools.base, for_disk=lambda _backend, _role: self.directory
            ),
            shared=SimpleNamespace(records=self.records, settings=settings),
        )

    def file(self, disk) -> Path:
        source = disk.source
        return Path(source.file or f"{self.directory.path}/{source.volume}")

    def guest_writes(self) -> None:
        for id, domain in self.domains.live.items():
            for disk in () if id in self.domains.paused else domain.disks:
                if not disk.read_only:
                    with self.file(disk).open("ab") as file:
                        file.write(b"+")
                    self.written[disk.target] = self.written.get(disk.target, b"") + b"+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    runs: bool = False
    request: TransitRequest = field(default_factory=TransitRequest)
    copies: bool = False
    back: bool = False


CASES = {
    "off": Case(),
    "off, to another file system": Case(copies=True),
    "stopped for it": Case(runs=True, request=TransitRequest(stop=True)),
    "while it runs": Case(runs=True, request=TransitRequest(live=True)),
    "back to Nova": Case(back=True),
}


def make(world: LegacyWorld, case: Case) -> Server:
    found = sample()
    directory = world.instances / found.id
    directory.mkdir()
    disks = []
    for number, (role, content) in enumerate(ROLES.items()):
        (directory / role).write_bytes(role.encode())
        disks.append(
            Disk(
                role=role,
                backend=Backend.RAW,
                pool="",
                volume="",
                format=DiskFormat.RAW,
                size=1,
                target=f"vd{'abc'[number]}",
                content=content,
                path=str(directory / role),
                bus="virtio",
            )
        )
    server = replace(found, disks=tuple(disks), host="local", networks=())
    world.records.put(server)
    steps.claim(world.host, server)
    steps.define(world.host, server)
    if case.back:
        server = transition.transit(world.host, server, TransitRequest()).server
    if case.runs:
        server = steps.power_on(world.host, server)
        world.records.put(server)
        world.guest_writes()
    return server


def act(world: LegacyWorld, case: Case, server: Server) -> None:
    if case.back:
        transition.give_back(world.host, server)
    elif case.copies:
        planned = transition.plan_for(world.host, server, case.request)
        details = replace(planned, ways=dict.fromkeys(ROLES, Way.COPY))
        with world.host.records.lock(server):
            transition.move_disks(Transit(host=world.host, details=details), server)
    else:
        transition.transit(world.host, server, case.request)


def attempt(world: LegacyWorld, fault: Fault, do: Callable[[], object]) -> bool:
    world.moments.begin(fault)
    with suppress(*FAILURES):
        do()
    came = world.moments.has_come
    world.moments.begin(NONE)
    world.guest_writes()
    return came


def play(state: Path, case: Case, first: Fault, second: Fault) -> tuple[bool, bool]:
    world = LegacyWorld(state)
    server = make(world, case)
    came = attempt(world, first, lambda: act(world, case, server))
    look(world, server)
    again = bool(left(world)) and attempt(world, second, lambda: recover(world.host, left(world)))
    look(world, server)
    for _ in range(2):
        if found := left(world):
            recover(world.host, found)
    assert left(world) is None
    world.guest_writes()
    look(world, server)
    settled(world, server, case)
    return came, again


def left(world: LegacyWorld) -> Server | None:
    return next((each for each in world.records.all() if each.operation), None)


def places(world: LegacyWorld, server: Server, disk: Disk) -> list[Path]:
    return [
        path
        for path in (
            world.instances / server.id / disk.role,
            Path(world.directory.path) / f"{server.id}_{disk.role}",
        )
        if path.exists()
    ]


def look(world: LegacyWorld, server: Server) -> None:
    """Of each disk there is a copy with all that its guest wrote."""
    for disk in server.disks:
        whole = disk.role.encode() + world.written.get(disk.target, b"")
        found = [path.read_bytes() for path in places(world, server, disk)]
        assert whole in found, (disk.role, found)


def settled(world: LegacyWorld, before: Server, case: Case) -> None:
    """There is one copy alone, where the record and the domain say."""
    now = next(iter(world.records.all()), None)
    domain = world.domains.defined[before.id]
    for disk in before.disks:
        (path,) = places(world, before, disk)
        assert world.file(domain.disk(disk.target)) == path
        if now:
            known = now.get_disk(disk.role)
            assert path == (
                Path(known.path) if known.path else Path(world.directory.path) / known.volume
            )
    assert set(world.directory._known) == {
        path.name for path in Path(world.directory.path).iterdir()
    }
    assert (before.id in world.domains.live) == case.runs
    assert not world.domains.paused
    assert not world.jobs.copies
    if now:
        copied = codec.decode_server(domain.record.record.encode(), Path())
        assert copied == replace(without_operation(now), should_run=False)
    else:
        assert case.back
        assert before.id not in world.claims.held


def moments(state: Path, case: Case, fault: Callable[[int], Fault]) -> int:
    world = LegacyWorld(state)
    server = make(world, case)
    world.moments.begin(fault(10**6))
    act(world, case, server)
    return world.moments.seen


@pytest.mark.parametrize("name", CASES)
def test_in_peace_the_disks_are_where_they_should_be(tmp_path, name):
    case = CASES[name]
    assert play(tmp_path / "world", case, NONE, NONE) == (True, False)
    world = LegacyWorld(tmp_path / "again")
    server = make(world, case)
    act(world, case, server)
    assert [each.disks for each in world.records.all()] == (
        []
        if case.back
        else [
            tuple(
                replace(each, pool="disks", volume=f"{server.id}_{each.role}", path="")
                for each in server.disks
            )
        ]
    )
    info = world.instances / server.id / "disk.info"
    assert info.exists() == case.back


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost_and_no_record_lies(tmp_path, name, kind):
    case, fault = CASES[name], FAULTS[kind]
    for at in range(1, moments(tmp_path / "count", case, fault) + 1):
        came, _ = play(tmp_path / f"{at}", case, fault(at), NONE)
        assert came


@pytest.mark.full
@pytest.mark.parametrize("again", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_nor_when_the_recovery_meets_it_again(tmp_path, name, again):
    def killed(at: int) -> Fault:
        return Fault(at=at, kinds=ANYWHERE, error=Killed())

    case = CASES[name]
    for at in range(1, moments(tmp_path / "count", case, killed) + 1):
        second, more = 1, True
        while more:
            state = tmp_path / f"{at}-{second}"
            _, more = play(state, case, killed(at), FAULTS[again](second))
            second += 1
