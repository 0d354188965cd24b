"""Stores of templates: files of this machine, and volumes of a pool in memory; who owns one."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from millpond.errors import CacheOwnedByAnother, NeedsHostFiles
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec
from millpond.templates.remote import RemoteTemplates, claim
from millpond.templates.store import Leftover, LocalTemplates
from tests.contract.template_store import TemplateStoreContract, forget, part, template


class TestLocalTemplates(TemplateStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        pool = MemoryPool("base")
        pool.path = str(tmp_path / "base")
        (tmp_path / "base").mkdir()
        self.records = tmp_path / "base.millpond" / "records"
        return LocalTemplates(pool)

    def damage(self, name):
        path = self.records / f"{name}.json"
        path.write_bytes(path.read_bytes()[:-1])


class TestRemoteTemplates(TemplateStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        self.records = CutOff("records")
        return RemoteTemplates(MemoryPool("base"), self.records, tmp_path / "sidecar")

    def damage(self, name):
        self.records.upload(f"{name}.json", b"?")

    def test_one_that_disks_may_stand_on_is_not_replaced(self, store, tmp_path):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        with pytest.raises(NeedsHostFiles, match="replacing template a is not possible"):
            store.enter(part(tmp_path, b"other"), "a", Leftover.WHOLE, forget)
        assert b"".join(store.read("a")).startswith(b"a template")

    @pytest.mark.parametrize("done", range(7))
    def test_cut_off_anywhere_it_holds_the_one_or_the_other(self, store, tmp_path, done):
        """delete, create, upload of the next; the same of the record; delete the next."""
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        store.put(template("a", "old"))
        self.records.left = done
        with pytest.raises(ConnectionError):
            store.put(template("a", "new"))
        self.records.left = 100
        found = store.find("a")
        assert found in (template("a", "old"), template("a", "new"))
        assert (list(store.all()), store.has_record("a")) == ([found], True)
        store.put(template("a", "newer"))
        assert store.find("a") == template("a", "newer")
        assert self.records.names() == ["a.json"]

    @pytest.mark.parametrize("done", range(7))
    def test_cut_off_at_first_it_holds_nothing_or_all(self, store, tmp_path, done):
        store.enter(part(tmp_path), "a", Leftover.NOTHING, forget)
        self.records.left = done
        with pytest.raises(ConnectionError):
            store.put(template("a"))
        self.records.left = 100
        assert store.find("a") == (template("a") if store.has_record("a") else None)
        store.forget("a")
        assert (self.records.names(), store.find("a")) == ([], None)

    def test_a_record_that_was_damaged_later_is_not_one_that_was_never_whole(self, store):
        self.records.create(VolumeSpec(name="a.json", format=DiskFormat.RAW, capacity=3))
        self.records.create(VolumeSpec(name="b.json.next", format=DiskFormat.RAW, capacity=3))
        assert (store.has_record("a"), store.has_record("b")) == (True, False)
        assert (store.find("a"), store.find("b")) == (None, None)


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


def test_a_cache_is_of_one_host_and_one_state_directory(tmp_path):
    pool = MemoryPool("records")
    for _ in range(2):
        claim(pool, "me", "far")
    assert pool.names() == ["me.far.mark"]
    for owner, host in (("you", "far"), ("me", "near")):
        with pytest.raises(
            CacheOwnedByAnother, match=r"another host or state directory \(me\.far\)"
        ):
            claim(pool, owner, host)
    store = RemoteTemplates(MemoryPool("base"), pool, tmp_path / "sidecar")
    assert list(store.all()) == []


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
        except CacheOwnedByAnother:
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
    with pytest.raises(CacheOwnedByAnother, match=r"you\.far"):
        claim(pool, "me", "far", patience=0.1)
    assert pool.names() == ["you.far.mark"]


def test_two_marks_of_before_refuse_both():
    pool = MemoryPool("records")
    for name in ("me.far.mark", "you.far.mark"):
        pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=0))
    for owner in ("me", "you"):
        with pytest.raises(CacheOwnedByAnother):
            claim(pool, owner, "far")
