"""Every host with its verdict, as it is shown."""

from collections.abc import Sequence
from dataclasses import asdict

from millpond.cli.output import table
from millpond.scheduling.decision import Decision, HostVerdict

COLUMNS = ("Host", "Verdict", "Score", "Why")


def show_verdicts(verdicts: Sequence[HostVerdict]) -> None:
    table(COLUMNS, [_row(each) for each in verdicts])


def plain(decision: Decision) -> list[dict[str, object]]:
    return [{**asdict(each), "lacks": sorted(each.lacks)} for each in decision.verdicts]


def _row(verdict: HostVerdict) -> tuple[str, ...]:
    parts = ", ".join(f"{name} {value:g}" for name, value in verdict.parts.items())
    score = f"{verdict.score:g}" if verdict.parts else ""
    return verdict.host, verdict.state, score, verdict.reason or parts
