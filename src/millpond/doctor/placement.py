"""Placement: every host reported, and for each server what its record says (--placement)."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from millpond.doctor.finding import Finding, counted, ok, problem, warning
from millpond.errors import NoRoom, Tool
from millpond.hosts.deployment import Deployment
from millpond.model.move import MigrateDetails
from millpond.model.names import ServerId
from millpond.scheduling.consistency import Consistency, Difference, Mismatch
from millpond.scheduling.placement import Allocations
from millpond.scheduling.providers import allocations_for

_WORDS = {
    Difference.MISSING: "server {name!r} takes nothing in Placement",
    Difference.DIFFERENT: "server {name!r} takes something else in Placement than its record says",
    Difference.ORPHAN: "Placement counts for {id}, which is no server any more",
    Difference.DEAD_PROVIDER: "server {name!r} is where Placement knows no host or pool",
    Difference.FOREIGN: "{id}, which is somebody else's, takes something of a host of Millpond's",
}
_DO = {
    Difference.DEAD_PROVIDER: f"'{Tool.REPORT_HOSTS}' reports it; then look again",
    Difference.FOREIGN: "see who it is: Millpond leaves it alone",
}


def hosts(deployment: Deployment) -> Iterator[Finding]:
    """Before servers: what they take is of hosts that Placement knows."""
    if not deployment.schedules:
        yield ok("Placement is not used: there is one host, and hosts are not filtered")
        return
    missing = deployment.scheduler.reporter.unreported()
    if missing:
        yield problem(
            f"Placement has not been told of {', '.join(missing)} as configured",
            f"'{Tool.REPORT_HOSTS}', or '{Tool.REPAIR_PLACEMENT}', tells it",
            partial(_report, deployment),
        )
    else:
        yield ok("Placement knows every host")


def servers(deployment: Deployment) -> Iterator[Finding]:
    if not deployment.schedules:
        return
    consistency = Consistency(deployment.scheduler.placement)
    known = {
        uuid for host in deployment.scheduler.reporter.providers().values() for uuid in host.all
    }
    expected = dict(_expected(deployment))
    found = [
        each for each in consistency.examine(expected, known) if _still_holds(deployment, each)
    ]
    for each in found:
        yield _describe(deployment, consistency, each)
    if not found:
        yield ok(f"Placement has what the records say of {counted(len(expected), 'server')}")


def _expected(deployment: Deployment) -> Iterator[tuple[str, Allocations]]:
    """Of hosts that were reported; the check before this one has found the others."""
    hosts = deployment.scheduler.reporter.providers()
    for server in deployment.records.all():
        if server.host in hosts:
            yield server.id, allocations_for(server, hosts[server.host])


def _still_holds(deployment: Deployment, mismatch: Mismatch) -> bool:
    """Not of a server that was made or deleted meanwhile, or is in the middle of something."""
    server = deployment.records.find(ServerId(mismatch.consumer))
    if server is None:
        is_nobody = mismatch.difference in (Difference.ORPHAN, Difference.FOREIGN)
        return is_nobody and mismatch.consumer not in _migrations(deployment)
    return mismatch.difference is not Difference.ORPHAN and server.operation is None


def _migrations(deployment: Deployment) -> set[str]:
    """By which servers that move have something at both ends."""
    details = [each.operation.details for each in deployment.records.all() if each.operation]
    return {each.migration for each in details if isinstance(each, MigrateDetails)}


def _takes(deployment: Deployment, mismatch: Mismatch) -> bool:
    """Whether its record still says what was expected of it."""
    server = deployment.records.find(ServerId(mismatch.consumer))
    host = deployment.scheduler.reporter.providers().get(server.host) if server else None
    return (allocations_for(server, host) if server and host else {}) == mismatch.expected


def _describe(deployment: Deployment, consistency: Consistency, mismatch: Mismatch) -> Finding:
    server = deployment.records.find(ServerId(mismatch.consumer))
    name = server.name if server else mismatch.consumer
    what = _WORDS[mismatch.difference].format(name=name, id=mismatch.consumer)
    if not mismatch.difference.can_be_repaired:
        return warning(what, _DO[mismatch.difference])
    return problem(
        what,
        f"'{Tool.REPAIR_PLACEMENT}' repairs it",
        partial(_repair, deployment, consistency, mismatch),
    )


def _report(deployment: Deployment) -> str:
    deployment.scheduler.reporter.report()
    return "it was told"


def _repair(deployment: Deployment, consistency: Consistency, mismatch: Mismatch) -> str:
    """Under the server's lock, or it could be deleted before what it takes is claimed. Of an
    orphan there is no record to be locked, and its id never comes back."""
    server = deployment.records.find(ServerId(mismatch.consumer))
    with deployment.records.lock(server) if server else nullcontext():
        as_before = _still_holds(deployment, mismatch) and _takes(deployment, mismatch)
        if as_before and consistency.repair([mismatch]):
            return "it was repaired"
    raise NoRoom("Placement has less than it takes, or has changed meanwhile")
