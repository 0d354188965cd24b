"""The QEMUs of one server, on whatever host."""

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import libvirt

from millpond.errors import NoConsole
from tests.support.multi_host import MultiHost
from tests.support.processes import find_pids
from tests.support.waiting import wait_for

_SECONDS = 0.05


@contextlib.contextmanager
def watching_qemus(server: str) -> Iterator[set[int]]:
    """Every one that it has had since then; at no time two of them, with copies of one disk."""
    seen: set[int] = set()
    at_once: list[set[int]] = []
    end = threading.Event()

    def look() -> None:
        while not end.wait(_SECONDS):
            now = set(find_pids(partial(_is_of, server)))
            seen.update(now)
            if len(now) > 1:
                at_once.append(now)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()
    assert at_once == []


@contextlib.contextmanager
def never_two_run(hosts: MultiHost, name: str) -> Iterator[None]:
    """A live migration has two QEMUs, one of which waits for the guest, or has lost it."""
    end = threading.Event()
    at_once: list[str] = []
    thread = threading.Thread(target=_look_for_two, args=(hosts, name, end, at_once))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    assert at_once == []


def _look_for_two(hosts: MultiHost, name: str, end: threading.Event, at_once: list[str]) -> None:
    """By connections of its own; the libvirtd of a host may die meanwhile."""
    connections: dict[str, libvirt.virConnect] = {}

    def runs(host: str) -> bool:
        try:
            if host not in connections:
                connections[host] = libvirt.open(hosts.hosts[host].uri)
            state, _reason = connections[host].lookupByName(name).state()
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                connections.pop(host, None)
            return False
        return bool(state == libvirt.VIR_DOMAIN_RUNNING)

    while not end.wait(_SECONDS / 2):
        for host in hosts.hosts:
            others = [each for each in hosts.hosts if each != host]
            # Asked again: it may have left after the first answer.
            if runs(host) and any(runs(each) for each in others) and runs(host):
                at_once.append(host)


def wait_until_booted(hosts: MultiHost, name: str, times: int = 1) -> None:
    """So often, and no more."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: _boots(hosts, name) >= times, 60)
    assert _boots(hosts, name) == times


def _boots(hosts: MultiHost, name: str) -> int:
    """By its own disk: it prints that when it is written."""
    host, server = hosts.deployment().find(name)
    printed: list[bytes] = []
    with contextlib.suppress(NoConsole):  # nothing yet
        log = host.consoles.read(server.id, name)
        printed = re.findall(rb"BOOTS ([0-9A-F]{4})\s+READY", log)
    return int(printed[-1], 16) if printed else 0


def _is_of(server: str, pid: int) -> bool:
    with contextlib.suppress(OSError):
        return f"-uuid\0{server}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
