"""Who uses a template, told beside the cache, and what a template takes."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from millpond.storage.memory_pool import MemoryPool
from millpond.system.files import own_space
from millpond.templates.marks import Marks
from millpond.templates.store import file_store

MONTH = timedelta(days=30)


@pytest.fixture
def store(tmp_path):
    pool = MemoryPool("base")
    pool.path = str(tmp_path / "_base")
    return file_store(pool)


def host(store, owner="here", lease=MONTH):
    return Marks(store, lambda: owner, lease)


def test_a_use_is_told_to_the_other_hosts(store):
    host(store).note("a")
    host(store).note("b")
    there = host(store, "there")
    assert [there.hosts_using(name) for name in "abc"] == [("host here",), ("host here",), ()]
    assert host(store).hosts_using("a") == ()


def test_a_host_that_is_not_heard_of_any_more_does_not_count(store):
    host(store).note("a")
    assert host(store, "there", lease=timedelta(0)).hosts_using("a") == ()


def test_what_is_no_longer_used_is_forgotten_but_not_when_it_was(store):
    store.write(store.beside / "records" / "a.json", b"")
    marks = host(store)
    marks.note("a")
    marks.note("gone")
    marks.tell(lambda: frozenset({"b"}))
    assert marks.own().in_use == {"b"}
    assert set(marks.own().last_used) == {"a", "b"}


def test_no_note_is_lost_while_the_host_looks_at_what_it_uses(store):
    """It comes from a record that was not there yet: it waits, and is written afterwards."""
    marks = host(store)
    with ThreadPoolExecutor(1) as threads:

        def look():
            threads.submit(marks.note, "late")
            return frozenset({"early"})

        marks.tell(look)
    assert marks.own().in_use == {"early", "late"}


def test_a_pin_says_whose_it_is_until_it_is_taken_away(store):
    marks = host(store)
    marks.pin("a", "root")
    assert (marks.pinned_by("a"), marks.pinned_by("b")) == ("root", "")
    marks.unpin("a")
    marks.unpin("a")
    assert marks.pinned_by("a") == ""


def test_only_a_file_of_its_own_takes_space(tmp_path):
    """B47: a link and a device are no files, and a hard link's bytes are somebody else's, too."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(8192))
    assert own_space(file) == 8192
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "device").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    others = [tmp_path / name for name in ("link", "device", "fifo", "missing")]
    assert [own_space(each) for each in others] == [0, 0, 0, 0]
    os.link(file, tmp_path / "hard")
    assert own_space(file) == 0
