"""One worker: a libvirtd of its own, and worlds one after the other until it is over."""

import itertools
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.campaign import Campaign, keep_evidence
from tests.chaos.inspection import Violated
from tests.chaos.world import new_world
from tests.support.guests import MicroGuest, build_micro_guest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.session import session_directory

_EVIDENCE = Path("/var/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    seed: str
    worker: int = 0
    seconds: float = 0
    """No end by time, if 0."""
    kills: float = 0
    violations: int = 1
    """After so many it is over, too."""
    first: int = 0
    """The first world: to replay one."""
    verbose: bool = False


@dataclass(slots=True)
class Report:
    turns: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0


def work(task: Task) -> Report:
    with session_directory() as directory, PrivateLibvirtd(directory / "libvirtd") as libvirtd:
        guest = build_micro_guest(directory / "micro.raw", marker="MILLPOND")
        return work_on(task, libvirtd, directory, guest)


def work_on(task: Task, libvirtd: PrivateLibvirtd, directory: Path, guest: MicroGuest) -> Report:
    """After a violation in a new world, with choices of its own."""
    report, begun = Report(), time.monotonic()
    for number in itertools.count(task.first):
        if _is_over(task, report, begun):
            break
        apart = bool((task.worker + number) % 2)
        with (
            new_world(libvirtd, directory, guest, task.worker, apart=apart) as world,
            libvirtd.connect() as connection,
        ):
            seed = f"{task.seed}.{task.worker}.{number}"
            campaign = Campaign(world=world, connection=connection, seed=seed)
            _endure(task, campaign, report, begun)
    report.seconds = time.monotonic() - begun
    return report


def _endure(task: Task, campaign: Campaign, report: Report, begun: float) -> None:
    """Turns in one world, until it is over or something was violated."""
    shown, before = 0, report.kills.copy()
    for number in itertools.count():
        if _is_over(task, report, begun):
            return
        try:
            campaign.turn(number)
        except Exception as error:  # a program's own root: nothing ends without its evidence
            what = str(error) if isinstance(error, Violated) else traceback.format_exc()
            _report(campaign, number, what, report)
            return
        finally:
            report.turns += 1
            report.kills = before + campaign.kills
            if task.verbose:
                print(*campaign.history[shown:], sep="\n", flush=True)
                shown = len(campaign.history)


def _report(campaign: Campaign, turn: int, violation: str, report: Report) -> None:
    place = _EVIDENCE / f"millpond-chaos-{campaign.seed}-{int(time.time())}"
    keep_evidence(campaign, violation, place)
    report.violations.append(f"seed {campaign.seed}, turn {turn}: {violation} ({place})")
    print(*campaign.history[-25:], f"VIOLATED: {violation}", sep="\n")
    print(f"seed {campaign.seed}; the whole history and the evidence: {place}", flush=True)


def _is_over(task: Task, report: Report, begun: float) -> bool:
    return bool(
        (task.seconds and time.monotonic() - begun >= task.seconds)
        or (task.kills and report.kills.total() >= task.kills)
        or len(report.violations) >= task.violations
    )
