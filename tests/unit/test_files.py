"""Atomic writes, links, copies that keep holes."""

import os
import signal
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.sizes import MiB
from millpond.model.template import Prepared
from millpond.system import files


def test_an_atomic_write_replaces_the_whole_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "record"
    files.write_atomically(path, b"one")
    files.write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "record"
    files.write_atomically(path, b"one")
    with pytest.raises(TypeError):
        files.write_atomically(path, "text is not bytes")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def die_at_fsync(_frame, event, called):
    if event == "c_call" and called is os.fsync:
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_of_a_write_is_known_after_a_minute(tmp_path):
    process = os.fork()
    if process == 0:
        sys.setprofile(die_at_fsync)
        files.write_atomically(tmp_path / "record.json", b"new")
    os.waitpid(process, 0)
    (left,) = tmp_path.iterdir()
    assert files.half_written(tmp_path) == []
    os.utime(left, (0, 0))
    (tmp_path / ".somebody.else").touch()
    os.utime(tmp_path / ".somebody.else", (0, 0))
    assert files.half_written(tmp_path) == [left]
    with left.open():  # somebody takes his time
        assert files.half_written(tmp_path) == []


def test_on_one_file_system_no_byte_is_copied(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"x" * 100)
    assert files.link_or_copy(source, target) is Prepared.HARD_LINK
    assert source.stat().st_ino == target.stat().st_ino


def test_across_file_systems_the_bytes_are_copied(tmp_path):
    source, target = tmp_path / "a", f"/dev/shm/millpond-test-{os.getpid()}"
    source.write_bytes(os.urandom(3 * MiB))
    try:
        done = []
        assert files.link_or_copy(source, files.Path(target), done.append) is Prepared.COPY
        with open(target, "rb") as copy:
            assert copy.read() == source.read_bytes()
        assert sum(done) == 3 * MiB
    finally:
        os.unlink(target)


pieces = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=8)


@settings(max_examples=40)
@given(pieces, st.integers(0, 4095))
def test_a_copy_has_the_same_bytes_and_keeps_the_holes(tmp_path_factory, pieces, tail):
    """B30"""
    folder = tmp_path_factory.mktemp("copy")
    source, target = folder / "a", folder / "b"
    with open(source, "wb") as file:
        for is_hole, pages in pieces:
            if is_hole:
                file.seek(pages * 4096, os.SEEK_CUR)
            else:
                file.write(b"\xa5" * pages * 4096)
        file.truncate(file.tell() + tail)
    with open(source, "rb") as reader, open(target, "xb") as writer:
        files.copy_into(reader.fileno(), writer.fileno())
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks


def test_a_larger_target_keeps_its_size(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"y" * MiB)
    with open(target, "wb") as writer:
        writer.truncate(5 * MiB)
    with open(source, "rb") as reader, open(target, "r+b") as writer:
        files.copy_into(reader.fileno(), writer.fileno())
    assert target.read_bytes() == b"y" * MiB + bytes(4 * MiB)


def test_an_open_file_is_known_to_be_open(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert not files.is_open(path)
    with open(path, "rb"):
        assert files.is_open(path)
    assert not files.is_open(tmp_path / "missing")


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(
    "read", [files.read, lambda descriptor, size: files.Pipe(descriptor).read(size)]
)
def test_a_signal_that_interrupts_no_system_call_ends_a_read(read):
    """It is another thread's, as one that comes just before the call is no longer in time."""

    def interrupt(_number, _frame):
        raise Interrupted

    def signal_and_end():
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not noticed.wait(10):
            late.append(os.write(sink, b"at last"))

    source, sink = os.pipe()
    noticed, late = threading.Event(), []
    thread = threading.Timer(0.3, signal_and_end)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        thread.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        with pytest.raises(Interrupted):
            read(source, 4096)
        assert not late
    finally:
        noticed.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGUSR1, before)
        os.close(source)
        os.close(sink)
