"""A libvirtd that stops answering, and does not end: nothing waits for it for ever."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from millpond.errors import ConnectionLost, HostProblem, HostUnreachable
from millpond.system.libvirtd import Libvirtd
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.millpond import Millpond

TIMEOUT = 3
SECONDS = 60
"""Within which all that waits has ended, on a machine that is busy."""


@contextmanager
def frozen(daemon: PrivateLibvirtd) -> Iterator[None]:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def join(thread: threading.Thread) -> None:
    thread.join(SECONDS)
    if thread.is_alive():
        faulthandler.dump_traceback()
        pytest.fail(f"it waits for longer than {SECONDS} s")


def within_seconds(act: Callable[[], object]) -> None:
    """In a thread: one that waits in libvirt cannot be interrupted."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except HostProblem as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    join(thread)
    if errors:
        raise errors[0]


@pytest.fixture
def host(libvirtd: PrivateLibvirtd) -> Iterator[Libvirtd]:
    opened = Libvirtd(libvirtd.uri, patience=TIMEOUT)
    yield opened
    opened.close()


def test_a_command_that_meets_it_ends_with_an_error(millpond: Millpond, libvirtd, micro_guest):
    millpond.configure(f"connection_timeout = {TIMEOUT}")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok("server", "create", "web", "--image", "guest", "--memory", "32M", "--no-start")
    with frozen(libvirtd):
        began = time.monotonic()
        code, message = millpond.fails("pool", "list")
        assert time.monotonic() - began < SECONDS
    assert code == 6
    assert f"cannot reach libvirt at {libvirtd.uri}: it did not answer within 3 s" in message
    assert "restart libvirtd" in message
    assert [each["state"] for each in millpond.json("server", "list")] == ["stopped"]


@pytest.mark.parametrize("pause", [0, 1.5])
def test_a_call_that_waits_for_it_ends_with_an_error(host, libvirtd, pause):
    """Whether the connection was used a moment ago, or is asked first whether it answers."""
    host.versions()
    time.sleep(pause)
    with frozen(libvirtd), pytest.raises((ConnectionLost, HostUnreachable), match="libvirt at"):
        within_seconds(host.versions)
    assert host.versions()


def test_nor_does_a_connection_without_keepalive_hold_who_asks_it(host, libvirtd):
    """libvirt's keepalive counts in wall-clock time, which may be set back."""
    with host.calling("switching keepalive off") as connection:
        connection.setKeepAlive(0, 0)
    time.sleep(1.5)
    with frozen(libvirtd), pytest.raises(HostUnreachable, match="did not answer within 3 s"):
        within_seconds(host.versions)
    assert host.versions()


def versions_or_error(host: Libvirtd) -> None:
    with suppress(HostProblem):
        host.versions()


def test_who_waits_for_it_holds_nobody_else(host, libvirtd):
    host.versions()
    time.sleep(1.5)
    with frozen(libvirtd):
        waiting = threading.Thread(target=versions_or_error, args=(host,), daemon=True)
        began = time.monotonic()
        waiting.start()
        time.sleep(0.2)
        host.close()
        assert time.monotonic() - began < 1.5 * TIMEOUT  # who waits connects again: twice that
        assert waiting.is_alive()
        join(waiting)
