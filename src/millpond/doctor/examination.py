"""Makes the checks one after the other, and repairs what can be on the way."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from millpond.doctor import configuration
from millpond.doctor.checks import (
    CHECKS,
    COMMON,
    CONFIGURATION,
    NOT_VALID,
    OF_A_HOST,
    PLACEMENT,
    Check,
)
from millpond.doctor.finding import Finding, Level, problem
from millpond.errors import MillpondError
from millpond.hosts.host import Host

S = TypeVar("S")


def examine(
    config_files: Sequence[Path], hosts: Sequence[str] | None = None, *, repair: bool = False
) -> Iterator[Finding]:
    """All hosts, or those that are named."""
    deployment, found = configuration.load(config_files)
    yield from (replace(each, check=CONFIGURATION) for each in found)
    if deployment is None:
        yield from _not_made(CHECKS, NOT_VALID)
        return
    lacking: dict[str, str] = {}
    chosen = deployment.select(hosts)
    yield from _examine(COMMON, chosen[0], lacking, repair=repair)
    for host in chosen:
        found_here = _examine(OF_A_HOST, host, dict(lacking), repair=repair)
        yield from (replace(each, host=host.name) for each in found_here)


def examine_placement(config_files: Sequence[Path], *, repair: bool = False) -> Iterator[Finding]:
    deployment, found = configuration.load(config_files)
    yield from (replace(each, check=CONFIGURATION) for each in found)
    yield from (
        _examine(PLACEMENT, deployment, {}, repair=repair)
        if deployment
        else _not_made(PLACEMENT, NOT_VALID)
    )


def examine_host(
    host: Host, checks: Sequence[Check[Host]] = CHECKS, *, repair: bool = False
) -> Iterator[Finding]:
    yield from _examine(checks, host, {}, repair=repair)


def _examine(
    checks: Sequence[Check[S]], subject: S, lacking: dict[str, str], *, repair: bool
) -> Iterator[Finding]:
    """What a check repairs is repaired before the next one looks. ``lacking`` is added to."""
    for check in checks:
        reason = next((lacking[name] for name in check.needs if name in lacking), None)
        if reason:
            lacking[check.name] = reason
            yield from _not_made([check], reason)
            continue
        if reason := check.skips(subject):
            yield from _not_made([check], reason)
            continue
        found = _repair_all(check, subject) if repair else _run_check(check, subject)
        if check.lack and any(each.level is Level.PROBLEM for each in found):
            lacking[check.name] = check.lack
        yield from found


def _not_made(checks: Sequence[Check[S]], reason: str) -> Iterator[Finding]:
    for check in checks:
        yield Finding(check=check.name, level=Level.UNKNOWN, what=f"not looked at: {reason}")


def _run_check(check: Check[S], subject: S) -> list[Finding]:
    found = [finding for look in check.looks for finding in _run_look(look, subject)]
    return [replace(each, check=check.name) for each in found]


def _run_look(look: Callable[[S], Iterable[Finding]], subject: S) -> Iterator[Finding]:
    """A look that fails is a problem like any other, and does not stop the next one."""
    try:
        yield from look(subject)
    except MillpondError as error:
        yield problem(str(error), error.advice)
    except OSError as error:
        yield problem(f"cannot look: {error}", "run this as root")


def _repair_all(check: Check[S], subject: S) -> list[Finding]:
    """What came of each repair, and what there is to see after it."""
    found = _run_check(check, subject)
    results = {each.what: _repair(each) for each in found if each.repair}
    if not results:
        return found
    failed = {what for what, each in results.items() if each.level is not Level.REPAIRED}
    after = [each for each in _run_check(check, subject) if each.what not in failed]
    return [*results.values(), *after]


def _repair(finding: Finding) -> Finding:
    assert finding.repair
    try:
        done = finding.repair()
    except MillpondError as error:
        reason, do = str(error), error.advice
    except OSError as error:
        reason, do = str(error), finding.do
    else:
        what = f"{finding.what}: {done}"
        return replace(finding, level=Level.REPAIRED, what=what, do="", repair=None)
    return replace(finding, what=f"{finding.what}; the repair failed: {reason}", do=do)
