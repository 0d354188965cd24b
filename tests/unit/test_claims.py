"""What servers take is claimed again under their locks: none is left for one that is gone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from millpond.doctor import placement
from millpond.errors import Busy, NoRoom
from millpond.placing.placing import Placing
from millpond.records.files import FileRecords
from millpond.system.locks import Locks
from tests.unit.samples import server


@pytest.fixture
def records(tmp_path):
    records = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    records.put(server())
    return records


def takes(each):
    return {"provider": {"DISK_GB": sum(disk.size for disk in each.disks)}}


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


class MovedPools(Placing):
    """Its hosts' pools are other providers now."""

    def __init__(self, records):
        self._records = records
        self._now = {"local": ("before",)}
        self.reporter = SimpleNamespace(report=self._report)
        self.placement = SimpleNamespace(allocations=Allocations())

    def providers(self):
        return dict(self._now)

    def allocations_of(self, each):
        return takes(each)

    def _report(self, *, prove):
        self._now = {"local": ("after",)}


def test_servers_follow_their_pools(records):
    placing = MovedPools(records)
    placing.report()
    assert placing.placement.allocations.claimed == [(server().id, takes(server()))]


def test_a_server_that_somebody_works_on_does_not_follow(records, caplog):
    """It may be going."""
    placing = MovedPools(records)
    with records.lock(server()):
        placing.report()
    assert placing.placement.allocations.claimed == []
    assert "server web is not counted as it should be" in caplog.text


def fleet_of(records):
    allocations = Allocations()
    providers = SimpleNamespace(consumers=lambda _uuid: {}, find=lambda **_: True)
    placed = SimpleNamespace(providers=providers, allocations=allocations)
    placing = SimpleNamespace(
        placement=placed, providers=lambda: {"local": ("provider",)}, allocations_of=takes
    )
    return SimpleNamespace(
        schedules=True, placing=placing, records=records, engines={"local": None}
    )


def test_what_a_server_lacks_is_put_right(records):
    fleet = fleet_of(records)
    (found,) = placement.servers(fleet)
    assert found.mend() == "it was put right"
    assert fleet.placing.placement.allocations.claimed == [(server().id, takes(server()))]


def test_but_not_while_somebody_works_on_it(records):
    fleet = fleet_of(records)
    (found,) = placement.servers(fleet)
    with records.lock(server()), pytest.raises(Busy):
        found.mend()
    assert fleet.placing.placement.allocations.claimed == []


def test_nor_when_it_was_deleted_or_has_grown_meanwhile(records):
    fleet = fleet_of(records)
    (found,) = placement.servers(fleet)
    larger = replace(server().disks[0], size=2 * server().disks[0].size)
    records.put(replace(server(), disks=(larger,)))
    with pytest.raises(NoRoom):
        found.mend()
    records.remove(server().id)
    with pytest.raises(NoRoom):
        found.mend()
    assert fleet.placing.placement.allocations.claimed == []
