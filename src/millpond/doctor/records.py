"""The state directory and the records in it: ours to write, and readable all of them."""

import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from millpond.doctor.finding import Finding, Level, counted, ok, problem, warning
from millpond.errors import HostNotConfigured, NewerRecord, Tool, UnreadableRecord
from millpond.hosts.host import Host
from millpond.system import files
from millpond.system.locks import Locks


def state_directory(host: Host) -> Iterator[Finding]:
    path = host.shared.settings.state_path
    there = files.nearest_existing(path)
    if not os.access(there, os.W_OK | os.X_OK):
        yield problem(
            f"the state directory {path} cannot be written to: {_describe(there)}",
            "run this as root or as a member of its group; see too whether it is mounted "
            "read-only",
        )
    elif there != path:
        yield ok(f"the state directory {path} is made when it is first needed")
    else:
        yield ok(f"the state directory {_describe(path)}")


def damaged(host: Host) -> Iterator[Finding]:
    servers, found = host.shared.records.readable()
    for each in found:
        yield problem(str(each), _advice(each))
    yield from _of_another_machine(host)
    if not found:
        yield ok(f"{counted(len(servers), 'server')} on record")


def _advice(found: UnreadableRecord) -> str:
    if isinstance(found, NewerRecord):
        return found.advice
    return (
        f"mv {found.path} {found.path}.damaged; then '{Tool.ADOPT}' makes it again "
        "from the server's domain, if that is still there"
    )


def without_host(host: Host) -> Iterator[Finding]:
    """Servers on hosts that the configuration does not name."""
    hosts = host.shared.settings.hosts
    servers, _ = host.shared.records.readable()
    for server in servers:
        if server.host not in hosts:
            error = HostNotConfigured(server.name, server.host)
            yield problem(str(error), error.advice)


def half_written(host: Host) -> Iterator[Finding]:
    state = host.shared.settings.state_path
    yield from abandoned_writes([state, state / "servers"], "record")
    yield from abandoned_locks([state / "locks", state / "images" / "locks"])


def abandoned_writes(directories: Sequence[Path], what: str) -> Iterator[Finding]:
    """Only said if there are some."""
    left = [path for each in directories for path in files.half_written(each)]
    if left:
        yield warning(
            f"killed processes left {counted(len(left), f'half-written {what}')}",
            f"'{Tool.REPAIR}' removes them; nobody reads them",
            partial(_remove, left),
        )


def abandoned_locks(directories: Sequence[Path]) -> Iterator[Finding]:
    """Only said if there are some; they keep nobody from anything."""
    locks = [Locks(each) for each in directories]
    if left := sum(len(each.abandoned()) for each in locks):
        what = f"killed processes left {counted(left, 'file')} of locks that nobody holds"
        yield Finding(level=Level.OK, what=what, repair=partial(_cleanup, locks))


def _cleanup(locks: Sequence[Locks]) -> str:
    for each in locks:
        each.cleanup()
    return "they were removed"


def _remove(paths: Sequence[Path]) -> str:
    for path in paths:
        files.remove(path)
    return f"{counted(len(paths), 'file')} removed"


def _of_another_machine(host: Host) -> Iterator[Finding]:
    """Only if there is an owner already: asking for it makes one."""
    if not (host.shared.settings.state_path / "owner.json").exists():
        return
    try:
        _ = host.records.owner
    except UnreadableRecord as error:
        yield problem(
            str(error),
            f"use a state directory of this machine's own; if this is a copy that shall go on "
            f"here, remove {error.path}, and '{Tool.ADOPT}' takes the servers over",
        )


def _describe(path: Path) -> str:
    found = path.stat()
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    return f"{path} belongs to {owner}, mode {stat.S_IMODE(found.st_mode):04o}"
