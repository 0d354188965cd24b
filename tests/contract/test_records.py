"""What every keeper of records promises."""

import os
from dataclasses import replace

import pytest

from millpond.errors import Busy, DamagedRecord, FileNotReadable, NewerRecord, StateNotWritable
from millpond.model.names import ServerId
from millpond.model.operation import Operation
from millpond.records.records import FileRecords, ServerJournal
from millpond.system.locks import Locks
from tests.unit.samples import SERVER_ID, busy_server, server


@pytest.fixture
def records(tmp_path):
    return FileRecords(tmp_path, Locks(tmp_path / "locks"))


@pytest.mark.parametrize("one", [server(), busy_server()], ids=["plain", "everything"])
def test_what_is_put_is_found(records, one):
    """B50"""
    records.put(one)
    assert records.find(SERVER_ID) == one
    assert records.all() == [one]


def test_what_is_not_there_is_none(records):
    assert records.find(SERVER_ID) is None
    records.put(replace(server(), id=ServerId("another")))
    for id in (SERVER_ID, "x" * 300, "é" * 130, "../owner"):
        assert records.find(ServerId(id)) is None
    records.remove(ServerId("another"))
    assert records.all() == []


def test_putting_again_replaces(records):
    records.put(server())
    working = server(operation=Operation(verb="create", step="disks", started="now"))
    records.put(working)
    assert records.all() == [working]


def test_removing_is_idempotent(records):
    records.put(server())
    records.remove(SERVER_ID)
    records.remove(SERVER_ID)
    assert records.all() == []


def test_servers_are_listed_by_name(records):
    for number, name in enumerate("cab"):
        records.put(replace(server(), id=ServerId(f"id-{number}"), name=name))
    assert [each.name for each in records.all()] == ["a", "b", "c"]


def test_one_operation_at_a_time_on_a_server(records):
    with records.lock(server()):
        assert records.is_worked_on(server())
        with pytest.raises(Busy, match="server 'web'"), records.lock(server()):
            pytest.fail("two operations")
    assert not records.is_worked_on(server())


def test_the_owner_stays_the_same(records, tmp_path):
    again = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    assert records.owner == again.owner != ""


def test_a_newer_record_is_refused_and_not_guessed_at(records, tmp_path):
    records.put(replace(server(), schema=99))
    with pytest.raises(NewerRecord, match="schema 99"):
        records.find(SERVER_ID)


def test_a_newer_record_stops_no_list_and_decides_nothing(records):
    other = replace(server(), id=ServerId("newer"), name="newer", schema=99)
    records.put(server())
    records.put(other)
    servers, unreadable = records.readable()
    assert servers == [server()]
    assert [each.path.stem for each in unreadable] == ["newer"]
    for decide in (records.all, lambda: records.has_name("free")):
        with pytest.raises(NewerRecord):
            decide()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 1}', b"not json"])
def test_a_damaged_record_is_named(records, tmp_path, content):
    records.put(server())
    path = tmp_path / "servers" / f"{SERVER_ID}.json"
    path.write_bytes(content)
    with pytest.raises(DamagedRecord, match=str(path)):
        records.all()
    assert [str(each.path) for each in records.readable()[1]] == [str(path)]


def test_a_state_directory_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "servers").write_text("a file where the directory should be")
    records = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    with pytest.raises(StateNotWritable, match="cannot write to the state directory"):
        records.put(server())


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run as root")
def test_records_that_we_may_not_see_are_an_error_and_not_none(records, tmp_path):
    records.put(server())
    (tmp_path / "servers").chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(FileNotReadable, match="servers"):
            records.all()
    finally:
        os.seteuid(0)


def test_the_start_of_an_operation_is_that_of_its_first_step(records):
    notes = ServerJournal(records)
    first = notes.enter(server(), "create", "disks")
    later = replace(first, operation=replace(first.operation, started="long ago"))
    assert notes.enter(later, "create", "domain").operation.started == "long ago"
    assert notes.enter(later, "delete", "stop").operation.started != "long ago"
