"""What servers take is claimed again under their locks: none is left for one that is gone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from millpond.doctor import placement
from millpond.errors import Busy, NoRoom
from millpond.model.server import Content, Flavor
from millpond.model.sizes import GiB
from millpond.records.records import FileRecords
from millpond.scheduling.claims import follow_providers
from millpond.scheduling.providers import HostProviders, allocations_for
from millpond.system.locks import Locks
from tests.unit.samples import disk, server

POOL = "nova-disks-pool"
NOW = {"local": HostProviders(host="host", pools={POOL: "shared"})}
TAKEN = {"host": {"VCPU": 2, "MEMORY_MB": 512}, "shared": {"DISK_GB": 10}}


@pytest.fixture
def records(tmp_path):
    records = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    records.put(server())
    return records


class Allocations:
    """In Placement."""

    def __init__(self):
        self.claimed = []

    def claim(self, id, wanted):
        self.claimed.append((id, wanted))

    def of(self, _id):
        return SimpleNamespace(held={}, project_id="")

    def change(self, id, writes):
        seen = SimpleNamespace(consumer=self.of(id), writing=lambda wanted: (id, wanted))
        self.claimed += writes(lambda _id: seen)


def placed():
    return SimpleNamespace(
        providers=SimpleNamespace(consumers=lambda _uuid: {}, find=lambda **_: True),
        allocations=Allocations(),
    )


def follow(records):
    """The pools of its host are other providers now."""
    before, placement = {"local": HostProviders(host="host", pools={POOL: "alone"})}, placed()
    follow_providers(placement, records, before, NOW)
    return placement.allocations.claimed


def test_servers_follow_their_pools(records):
    assert follow(records) == [(server().id, TAKEN)]


def test_a_server_that_somebody_works_on_does_not_follow(records, caplog):
    """It may be going."""
    with records.lock(server()):
        assert follow(records) == []
    assert "server web is not counted as it should be" in caplog.text


def test_disks_of_one_pool_are_added_up_without_config_drives_and_those_elsewhere():
    sizes = {POOL: (GiB // 2, GiB // 4), "nobody's": (GiB,), "other": (GiB + 1,)}
    disks = [replace(disk(), pool=pool, size=each) for pool in sizes for each in sizes[pool]]
    disks.append(replace(disk(), pool=POOL, size=GiB, content=Content.CONFIG))
    pools = {POOL: "pool", "other": "other", "empty": "empty"}
    wanted = server(disks=tuple(disks), flavor=Flavor(vcpus=3, memory=GiB + 1))
    assert allocations_for(wanted, HostProviders(host="host", pools=pools)) == {
        "host": {"VCPU": 3, "MEMORY_MB": 1025},
        "pool": {"DISK_GB": 1},
        "other": {"DISK_GB": 2},
    }


def fleet_of(records):
    reporter = SimpleNamespace(providers=lambda: NOW)
    scheduler = SimpleNamespace(placement=placed(), reporter=reporter)
    return SimpleNamespace(schedules=True, scheduler=scheduler, records=records)


def test_what_a_server_lacks_is_put_right(records):
    deployment = fleet_of(records)
    (found,) = placement.servers(deployment)
    assert found.repair() == "it was repaired"
    assert deployment.scheduler.placement.allocations.claimed == [(server().id, TAKEN)]


def test_but_not_while_somebody_works_on_it(records):
    deployment = fleet_of(records)
    (found,) = placement.servers(deployment)
    with records.lock(server()), pytest.raises(Busy):
        found.repair()
    assert deployment.scheduler.placement.allocations.claimed == []


def test_nor_when_it_was_deleted_or_has_grown_meanwhile(records):
    deployment = fleet_of(records)
    (found,) = placement.servers(deployment)
    larger = replace(server().disks[0], size=2 * server().disks[0].size)
    records.put(replace(server(), disks=(larger,)))
    with pytest.raises(NoRoom):
        found.repair()
    records.remove(server().id)
    with pytest.raises(NoRoom):
        found.repair()
    assert deployment.scheduler.placement.allocations.claimed == []
