"""Shelves and ledgers of files, and of the volumes of a pool in memory."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from millpond.errors import CacheOfAnother, DamagedRecord, NeedsHostFiles
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec
from millpond.templates.belonging import claim
from millpond.templates.ledger import FileLedger, VolumeLedger
from millpond.templates.shelf import FileShelf, Left, VolumeShelf
from tests.contract.ledger import LedgerContract
from tests.contract.shelf import ShelfContract, forget, part


class TestFileShelf(ShelfContract):
    @pytest.fixture
    def shelf(self, tmp_path):
        pool = MemoryPool("base")
        pool.path = str(tmp_path / "base")
        (tmp_path / "base").mkdir()
        return FileShelf(pool)


class TestVolumeShelf(ShelfContract):
    @pytest.fixture
    def shelf(self):
        return VolumeShelf(MemoryPool("base"))

    def test_one_that_disks_may_stand_on_is_not_replaced(self, shelf, tmp_path):
        shelf.enter(part(tmp_path), "a", Left.NOTHING, forget)
        with pytest.raises(NeedsHostFiles, match="replacing template a is not possible"):
            shelf.enter(part(tmp_path, b"other"), "a", Left.WHOLE, forget)
        assert b"".join(shelf.bytes_of("a")).startswith(b"a template")


class TestFileLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, tmp_path):
        self.directory = tmp_path
        return FileLedger(tmp_path)

    def damage(self, name):
        path = self.directory / f"{name}.json"
        path.write_bytes(path.read_bytes()[:-1])


class TestVolumeLedger(LedgerContract):
    @pytest.fixture
    def ledger(self):
        self.pool = MemoryPool("records")
        return VolumeLedger(self.pool)

    def damage(self, name):
        self.pool.upload(f"{name}.json", b"?")

    @pytest.mark.parametrize("done", range(7))
    def test_cut_off_anywhere_it_holds_the_one_or_the_other(self, done):
        """delete, create, upload of the next; the same of the record; delete the next."""
        pool = CutOff("records")
        ledger = VolumeLedger(pool)
        ledger.write("a", b"old")
        pool.left = done
        with pytest.raises(ConnectionError):
            ledger.write("a", b"new")
        pool.left = 100
        assert ledger.read("a") in (b"old", b"new")
        assert (ledger.names(), ledger.has("a")) == (["a"], True)
        ledger.write("a", b"newer")
        assert ledger.read("a") == b"newer"
        assert pool.names() == ["a.json"]

    @pytest.mark.parametrize("done", range(7))
    def test_cut_off_at_first_it_holds_nothing_or_all(self, done):
        pool = CutOff("records")
        ledger = VolumeLedger(pool)
        pool.left = done
        with pytest.raises(ConnectionError):
            ledger.write("a", b"new")
        pool.left = 100
        assert ledger.read("a") == (b"new" if ledger.has("a") else None)
        ledger.remove("a")
        assert (pool.names(), ledger.read("a")) == ([], None)

    def test_a_record_that_was_damaged_later_is_not_one_that_was_never_whole(self):
        pool = MemoryPool("records")
        pool.create(VolumeSpec(name="a.json", format=DiskFormat.RAW, capacity=3))
        with pytest.raises(DamagedRecord):
            VolumeLedger(pool).read("a")


class CutOff(MemoryPool):
    """The connection breaks off after so many calls that change something."""

    left = 100

    def create(self, spec):
        self._count()
        return super().create(spec)

    def upload(self, name, content):
        if self.left == 0:
            super().upload(name, content[: len(content) // 2])
        self._count()
        super().upload(name, content)

    def delete(self, name):
        self._count()
        super().delete(name)

    def _count(self):
        if self.left == 0:
            raise ConnectionError
        self.left -= 1


def test_a_cache_is_of_one_host_and_one_state_directory():
    pool = MemoryPool("records")
    for _ in range(2):
        claim(pool, "me", "far")
    assert pool.names() == ["me.far.mark"]
    for owner, host in (("you", "far"), ("me", "near")):
        with pytest.raises(CacheOfAnother, match=r"another host or state directory \(me\.far\)"):
            claim(pool, owner, host)
    assert VolumeLedger(pool).names() == []


class Crowded(MemoryPool):
    """All look, and then make their marks, before anybody looks again."""

    def __init__(self, name, count):
        super().__init__(name)
        self._looks = itertools.count()
        self._count, self._all = count, threading.Barrier(count)

    def names(self):
        found = super().names()
        if next(self._looks) < self._count:
            self._all.wait(10)
        return found

    def create(self, spec):
        made = super().create(spec)
        self._all.wait(10)
        return made


@pytest.mark.parametrize("count", [2, 4])
def test_of_those_who_claim_it_at_once_one_has_it(count):
    pool = Crowded("records", count)

    def claimed(owner):
        try:
            claim(pool, owner, "far")
        except CacheOfAnother:
            return False
        return True

    owners = [f"owner{number}" for number in range(count)]
    with ThreadPoolExecutor(count) as threads:
        won = dict(zip(owners, threads.map(claimed, owners), strict=True))
    assert sum(won.values()) == 1
    assert pool.names() == [f"{each}.far.mark" for each in owners if won[each]]


def test_who_made_its_mark_first_keeps_it_whatever_its_name():
    class Late(MemoryPool):
        """Another has claimed it when we make our mark."""

        def create(self, spec):
            if not self.names():
                super().create(replace(spec, name="you.far.mark"))
            return super().create(spec)

    pool = Late("records")
    with pytest.raises(CacheOfAnother, match=r"you\.far"):
        claim(pool, "me", "far", patience=0.1)
    assert pool.names() == ["you.far.mark"]


def test_two_marks_of_before_refuse_both():
    pool = MemoryPool("records")
    for name in ("me.far.mark", "you.far.mark"):
        pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=0))
    for owner in ("me", "you"):
        with pytest.raises(CacheOfAnother):
            claim(pool, owner, "far")
