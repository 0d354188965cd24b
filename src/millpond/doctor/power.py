"""Servers: those that should run do, and libvirt starts with the host those that should."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from millpond.doctor.finding import Finding, counted, ok, problem, some, warning
from millpond.errors import HostProblem, MillpondError, Tool
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.server import Server
from millpond.servers import power, steps


def running(host: Host) -> Iterator[Finding]:
    servers = _settled(host)
    states = host.domains.states([each.id for each in servers])
    off = [each for each in servers if each.should_run and states.get(each.id) == "stopped"]
    unasked = [each for each in servers if not each.should_run and states.get(each.id) in ON]
    if off:
        do = "does not" if len(off) == 1 else "do not"
        yield problem(
            f"{counted(len(off), 'server')} should run and {do}: {_names(off)}",
            f"'{Tool.REPAIR}' or '{Tool.SERVER} start' starts what should run; "
            f"'{Tool.SERVER} stop' says that it should not",
            partial(_do_each, host, off, power.start, "started"),
        )
    if unasked:
        run, were = ("runs", "was") if len(unasked) == 1 else ("run", "were")
        yield warning(
            f"{counted(len(unasked), 'server')} {run}, but {were} not started by Millpond, or by "
            f"an earlier version: after a reboot of the host not again: {_names(unasked)}",
            f"'{Tool.REPAIR}' or '{Tool.SERVER} start' records that it should run",
            partial(_do_each, host, unasked, power.start, "recorded"),
        )
    if not off and not unasked:
        yield ok("each server that should run does")


def autostart(host: Host) -> Iterator[Finding]:
    started = host.autostart.ids()
    servers = _settled(host)
    there = host.domains.states([each.id for each in servers])
    differing = [
        each
        for each in servers
        if each.id in there and each.starts_with_host != (each.id in started)
    ]
    if differing:
        yield warning(
            f"libvirt's autostart is not as recorded of {counted(len(differing), 'server')}: "
            f"{_names(differing)}",
            f"'{Tool.REPAIR}' sets it as recorded; '{Tool.SERVER} set --autostart' or "
            "'--no-autostart' changes what is recorded",
            partial(_do_each, host, differing, _sync, "set"),
        )
    else:
        yield ok("libvirt's autostart is as recorded")


def _settled(host: Host) -> list[Server]:
    return [
        each
        for each in host.records.all()
        if not each.operation and not host.records.is_worked_on(each)
    ]


def _names(servers: Sequence[Server]) -> str:
    return some([each.name for each in servers])


def _sync(host: Host, server: Server) -> None:
    with host.records.lock(server):
        steps.sync_autostart(host, steps.load_idle(host, server))


def _do_each(
    host: Host, servers: Sequence[Server], act: Callable[[Host, Server], None], done: str
) -> str:
    """Whatever becomes of the others."""
    failed = []
    for each in servers:
        try:
            act(host, each)
        except MillpondError as error:
            failed.append(f"{each.name}: {error}")
    if failed:
        raise HostProblem(
            f"not all {done}: {'; '.join(failed)}", "remove the cause, and run it again"
        )
    return f"{_names(servers)} {done}"
