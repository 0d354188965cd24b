"""Who uses a template, written next to the cache, and what a template takes."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from millpond.errors import NewerRecord
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import DiskFormat
from millpond.model.names import ImageId
from millpond.model.sizes import MiB
from millpond.model.template import Prepared, Template
from millpond.system.files import own_space
from millpond.templates.cache_manager import UsageLeases
from millpond.templates.store import LocalTemplates

MONTH = timedelta(days=30)


def template(store, name, schema):
    return Template(
        image=ImageId("image"),
        image_digest="0",
        pool=store.pool.name,
        volume=name,
        format=DiskFormat.RAW,
        virtual_size=MiB,
        size=5,
        prepared=Prepared.COPY,
        digest=None,
        created="2026-01-02T03:04:05+00:00",
        schema=schema,
    )


@pytest.fixture
def store(tmp_path):
    pool = MemoryPool("base")
    pool.path = str(tmp_path / "_base")
    (tmp_path / "_base").mkdir()
    return LocalTemplates(pool)


def host(store, owner="here", lease=MONTH):
    return UsageLeases(store, lambda: owner, lease)


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
    store.write(store.sidecar / "records" / "a.json", b"")
    leases = host(store)
    leases.note("a")
    leases.note("gone")
    leases.renew(lambda: frozenset({"b"}))
    assert leases.own().in_use == {"b"}
    assert set(leases.own().last_used) == {"a", "b"}


def test_no_note_is_lost_while_the_host_looks_at_what_it_uses(store):
    """It comes from a record that was not there yet: it waits, and is written afterwards."""
    leases = host(store)
    with ThreadPoolExecutor(1) as threads:

        def look():
            threads.submit(leases.note, "late")
            return frozenset({"early"})

        leases.renew(look)
    assert leases.own().in_use == {"early", "late"}


@pytest.mark.parametrize("content", [b"{", b'{"schema": 99}'], ids=["damaged", "newer"])
def test_a_host_whose_mark_cannot_be_read_may_use_anything(store, content):
    host(store).note("a")
    (store.sidecar / "uses" / "here.json").write_bytes(content)
    there = host(store, "there")
    there.note("b")
    (found,) = there.hosts_using("c")
    assert found.startswith("perhaps host here: the record")


@pytest.mark.parametrize("content", [b"{", b'{"schema": 99}'], ids=["damaged", "newer"])
def test_a_pin_that_cannot_be_read_is_one(store, content):
    leases = host(store)
    leases.pin("a", "root")
    (store.sidecar / "pins" / "a.json").write_bytes(content)
    assert leases.pinned_by("a").startswith("somebody: the record")


def test_a_template_of_a_newer_version_stops_no_list_and_is_nobody_elses(store, caplog):
    for name, schema in (("a", 1), ("newer", 99)):
        store.put(template(store, name, schema))
        (store.cache / name).write_bytes(b"bytes")
    for _ in range(2):
        assert [each.volume for each in store.all()] == ["a"]
    assert [each.message.split(" is left out")[0] for each in caplog.records] == ["template newer"]
    with pytest.raises(NewerRecord):
        store.find("newer")
    assert store.unknown() == []
    assert store.space() == 2 * store.space("a") > 0


def test_a_pin_says_whose_it_is_until_it_is_taken_away(store):
    leases = host(store)
    leases.pin("a", "root")
    assert (leases.pinned_by("a"), leases.pinned_by("b")) == ("root", "")
    leases.unpin("a")
    leases.unpin("a")
    assert leases.pinned_by("a") == ""


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
