"""Hosts are reported to Placement when it is due, and servers are placed on what was reported."""

import json
from dataclasses import replace

import pytest

from millpond.errors import HostUnreachable, NoValidHost
from millpond.libvirt.facts import HostFacts
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pools import PoolWanted
from millpond.model.formats import ImageFormat
from millpond.model.names import ServerId
from millpond.model.sizes import GiB
from millpond.records.records import FileRecords
from millpond.scheduling.claims import PlacedClaims
from millpond.scheduling.decision import State
from millpond.scheduling.disabled import DisabledHosts
from millpond.scheduling.embedded import EmbeddedPlacement
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import CapacitySettings, pool_provider
from millpond.scheduling.reporter import Reporter, ReportFile
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.traits import DISABLED
from millpond.scheduling.weigh import Multipliers
from millpond.system.locks import Locks
from tests.support.scheduling import ONE, POOL, plan, request, uuid_of

DRIVES = "config-drives"


class Host:
    """A host that can be switched off. Its config drives are in a pool of their own."""

    uri = "qemu:///system"
    settings_digest = "as configured"
    capacity = CapacitySettings(
        cpu_allocation_ratio=ONE,
        ram_allocation_ratio=ONE,
        disk_allocation_ratio=ONE,
        reserved_host_cpus=1,
        reserved_host_memory_mb=512,
        reserved_host_disk_mb=0,
    )

    def __init__(self, name, pool=None, drives=None):
        self.name = name
        self.pool = pool or MemoryPool(POOL, size=20 * GiB)
        self.drives = drives or MemoryPool(DRIVES, size=GiB)
        self.answers = True
        self.asked = 0

    def facts(self):
        self.asked += 1
        if not self.answers:
            raise HostUnreachable(self.uri, "it is off")
        return HostFacts(
            uuid=uuid_of(self.name),
            hypervisor="qemu",
            vcpus=4,
            memory=8 * GiB,
            architectures=("x86_64",),
            buses=("virtio",),
        )

    def disk_pools(self):
        return {POOL: PoolWanted(name=POOL, path="/disks")}

    def server_pools(self):
        return {**self.disk_pools(), DRIVES: PoolWanted(name=DRIVES, path="/drives")}

    def open_pool(self, name):
        return self.drives if name == DRIVES else self.pool

    def pools_by_image_type(self, _hypervisor):
        return {ImageFormat.QCOW2: POOL}

    def blank_disk_pools(self):
        return {POOL}


class CountedFile(ReportFile):
    reads = 0

    def read(self):
        self.reads += 1
        return super().read()


class World:
    """Some hosts, and what has been reported of them."""

    def __init__(self, directory, *hosts):
        self.hosts = {each.name: each for each in hosts}
        self.path = directory / "reported.json"
        self.file = CountedFile(self.path, seconds=60)
        locks = Locks(directory / "locks")
        self.records = FileRecords(directory, locks)
        self.placement = Placement(EmbeddedPlacement(directory / "placement"))
        self.disabled = DisabledHosts(directory / "disabled.json", locks)
        self.reporter = Reporter(
            self.hosts, self.placement, self.records, locks, self.file, self.disabled
        )
        self.scheduler = Scheduler(
            self.placement, self.reporter, Multipliers(), filters_image_types=True
        )
        self.claims = PlacedClaims(self.placement, self.reporter.providers)

    def create(self, gibibytes=5):
        wanted = request()

        def create_on(host):
            server = replace(plan(gibibytes).server, id=ServerId(wanted.server), host=host)
            self.records.put(server)
            self.claims.hold(server)
            return server

        return self.scheduler.place(wanted, lambda _: plan(gibibytes), create_on)

    def held(self, server):
        return self.placement.allocations.of(server.id).held


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, Host("a"), Host("b"))


def test_hosts_are_reported_once_and_read_once_for_a_decision(world):
    first = world.create()
    assert world.held(first) == {
        uuid_of("a"): {"VCPU": 1, "MEMORY_MB": 512},
        pool_provider(uuid_of("a"), POOL): {"DISK_GB": 5},
    }
    found = world.placement.providers.inventories(uuid_of("a"))
    assert (found["VCPU"].total, found["VCPU"].reserved) == (4, 1)
    assert (found["MEMORY_MB"].total, found["MEMORY_MB"].reserved) == (8192, 512)
    world.file.reads = 0
    world.scheduler.decide(request(), lambda _: plan())
    assert world.file.reads == 1
    assert [each.asked for each in world.hosts.values()] == [1, 1]


@pytest.mark.parametrize("change", ["the configuration", "the clock", "the file"])
def test_they_are_reported_again_when_something_changed(world, change):
    world.reporter.report_if_due()
    if change == "the configuration":
        world.hosts["b"].settings_digest = "as configured now"
    elif change == "the clock":
        found = json.loads(world.path.read_text())
        found["hosts"]["b"]["at"] += 1000
        world.path.write_text(json.dumps(found))
    else:
        world.path.write_text("{")
    for _ in range(2):
        world.reporter.report_if_due()
    assert [each.asked for each in world.hosts.values()] == [2, 2]


def test_a_placement_that_lost_hosts_is_told_again(world):
    world.reporter.report_if_due()
    for uuid in (uuid_of(name) for name in "ab"):
        world.placement.providers.remove(pool_provider(uuid, POOL))
        world.placement.providers.remove(uuid)
    assert world.reporter.unreported() == ["a", "b"]
    assert world.create().host == "a"
    assert world.reporter.unreported() == []


def test_a_host_that_does_not_answer_gets_no_servers_until_it_does(world):
    kept = world.create()
    world.hosts["a"].answers = False
    answers = world.reporter.report()
    assert "it is off" in answers["a"].gone
    assert world.create().host == "b"
    decision = world.scheduler.decide(request(), lambda _: plan(), everything=True)
    assert {each.host: each.state for each in decision.verdicts} == {
        "a": State.DISABLED,
        "b": State.FITS,
    }
    assert world.held(kept)
    world.hosts["a"].answers = True
    world.reporter.report()
    assert world.create().host == "a"


def test_a_host_that_is_disabled_gets_no_servers_until_it_is_enabled(world):
    world.reporter.report()
    assert world.disabled.add("a", "drained")
    assert not world.disabled.add("a", "again")
    world.reporter.report()
    assert world.create().host == "b"
    world.reporter.report()
    assert DISABLED in world.placement.providers.traits(uuid_of("a"))
    assert world.disabled.read()["a"].why == "drained"
    assert world.disabled.remove("a")
    assert not world.disabled.remove("a")
    world.reporter.report()
    assert DISABLED not in world.placement.providers.traits(uuid_of("a"))


def test_a_pool_that_two_hosts_share_counts_once_and_claims_follow(tmp_path):
    shared = MemoryPool(POOL, size=20 * GiB)
    world = World(tmp_path, Host("a", shared), Host("b"))
    server = world.create(15)
    alone = pool_provider(uuid_of("a"), POOL)
    assert world.held(server)[alone] == {"DISK_GB": 15}
    world.hosts["b"].pool = shared
    world.reporter.report()
    together = pool_provider(uuid_of("a"), POOL, (uuid_of("a"), uuid_of("b")))
    assert world.held(server) == {
        uuid_of("a"): {"VCPU": 1, "MEMORY_MB": 512},
        together: {"DISK_GB": 15},
    }
    with pytest.raises(NoValidHost, match="5 of 6 DISK_GB are free"):
        world.scheduler.place(request(root=6 * GiB), lambda _: plan(6), lambda _: None)


def test_a_pool_of_config_drives_is_proven_to_be_shared_and_counts_nothing(tmp_path):
    shared = MemoryPool(DRIVES, size=GiB)
    world = World(tmp_path, Host("a", drives=shared), Host("b", drives=shared), Host("c"))
    world.reporter.report()
    both = frozenset(uuid_of(name) for name in "ab")
    found = {name: each.shared_pools for name, each in world.reporter.known().items()}
    assert found == {"a": {DRIVES: both}, "b": {DRIVES: both}, "c": {}}
    for name, host in world.reporter.providers().items():
        assert dict(host.pools) == {POOL: pool_provider(uuid_of(name), POOL)}
