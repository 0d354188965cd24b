"""A snapshot in a pool that keeps a moment by itself: the same verb, without an overlay."""

import pytest

from millpond.compute import freezing
from millpond.compute.host import Host
from millpond.compute.snapshot import snapshotting
from millpond.model.formats import Backend
from millpond.records import journal
from millpond.records.files import FileRecords
from millpond.records.records import ServerJournal
from millpond.system.locks import Locks
from tests.unit.samples import server


class Pool:
    """It writes down what is asked of it."""

    def __init__(self):
        self.asked = []

    def exists(self, disk):
        return True

    def freeze(self, disk):
        self.asked.append(f"freeze {disk.role}")

    def thaw(self, disk):
        self.asked.append(f"thaw {disk.role}")

    def tidy(self, disk):
        self.asked.append(f"tidy {disk.role}")


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def host(pool, tmp_path):
    absent = dict.fromkeys(Host.__slots__)
    records = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    return Host(**{**absent, "backends": {Backend.QCOW2: pool}, "records": records})


def take(host, extract):
    details = freezing.details_of(host, server())
    verb = snapshotting(host, details, extract)
    return journal.run(verb, server(), ServerJournal(host.records, details))


def test_it_is_frozen_before_and_thawed_after(host, pool):
    """Whether the server runs is not asked."""
    taken = take(host, lambda _: pool.asked.append("extract"))
    assert pool.asked == ["freeze disk", "extract", "thaw disk"]
    assert taken.operation is None
    assert taken.overlay is None


def test_it_is_thawed_when_the_copy_fails(host, pool):
    def fail(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(host, fail)
    assert pool.asked == ["freeze disk", "tidy disk", "thaw disk"]
    assert host.records.find(server().id).operation is None


def test_who_comes_after_a_crash_thaws_it(host, pool):
    entered = ServerJournal(host.records, {}).enter(server(), "snapshot", "extract")
    verb = snapshotting(host, entered.operation.details)
    journal.recover(verb, "extract", entered, ServerJournal(host.records))
    assert pool.asked == ["tidy disk", "thaw disk"]


def test_a_disk_that_goes_is_thawed_first(host, pool):
    freezing.forget(host, server().disks[0])
    assert pool.asked == ["thaw disk"]
