"""Locks between threads and processes."""

import multiprocessing
import os
import signal
import threading

import pytest

from millpond.errors import Busy
from millpond.system.locks import Locks


@pytest.fixture
def locks(tmp_path):
    return Locks(tmp_path / "locks")


def test_threads_exclude_each_other(locks):
    counted = [0]

    def count():
        for _ in range(50):
            with locks.hold("a/b"):
                before = counted[0]
                os.sched_yield()
                counted[0] = before + 1

    threads = [threading.Thread(target=count) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert counted[0] == 8 * 50


def test_a_held_lock_is_seen_without_being_taken_and_refused_at_once(locks):
    with locks.hold("server:1"):
        assert locks.is_held("server:1")
        with (
            pytest.raises(Busy, match="under way on server one"),
            locks.hold_now("server:1", "server one"),
        ):
            pytest.fail("two holders")
    assert not locks.is_held("server:1")
    with locks.hold_now("server:1", "server one"):
        assert locks.is_held("server:1")


def test_asking_never_makes_somebody_else_busy(locks):
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            locks.is_held("x")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2000):
            with locks.hold_now("x", "x"):
                pass
    finally:
        stop.set()
        asking.join()


def _hold_for_ever(directory, ready):
    with Locks(directory).hold("x"):
        ready.set()
        signal.pause()


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold_for_ever, args=(tmp_path, ready))
    process.start()
    assert ready.wait(30)
    locks = Locks(tmp_path)
    assert locks.is_held("x")
    process.kill()
    process.join()
    assert not locks.is_held("x")
    with locks.hold_now("x", "x"):
        pass


def test_locks_that_share_a_file_exclude_only_their_own_kind(locks, tmp_path):
    """As on a full file system, where no lock can have a file of its own."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "spare").write_text("kept")
    for name in ("a", "b"):
        os.link(tmp_path / "spare", tmp_path / "locks" / name)
    with locks.hold_now("a", "a"):
        assert locks.is_held("a")
        assert not locks.is_held("b")
        with locks.hold_now("b", "b"), pytest.raises(Busy), locks.hold_now("a", "a"):
            pytest.fail("two holders")
    assert os.listdir(tmp_path / "locks") == []
    assert (tmp_path / "spare").read_text() == "kept"


def test_no_lock_file_is_left(locks, tmp_path):
    with locks.hold("a"):
        pass
    assert list((tmp_path / "locks").iterdir()) == []


def test_files_of_killed_holders_are_swept_and_those_of_living_ones_stay(locks, tmp_path):
    names = ["server:1", "template:a.raw", "x" * 300]
    for name in names:
        process = os.fork()
        if process == 0:
            with locks.hold(name):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(process, 0)
    with locks.hold("server:2"):
        assert len(locks.abandoned()) == 3
        locks.cleanup()
        assert locks.is_held("server:2")
        assert os.listdir(tmp_path / "locks") == ["server%3A2"]
    assert locks.abandoned() == []
