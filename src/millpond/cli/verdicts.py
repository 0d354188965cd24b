"""Every host with its verdict, as it is shown."""

from collections.abc import Sequence
from dataclasses import asdict

from millpond.cli.output import table
from millpond.scheduling.decision import Decision, Verdict

COLUMNS = ("Host", "Verdict", "Score", "Why")


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    table(COLUMNS, [_row(each) for each in verdicts])


def plain(decision: Decision) -> list[dict[str, object]]:
    return [{**asdict(each), "lacks": sorted(each.lacks)} for each in decision.verdicts]


def _row(verdict: Verdict) -> tuple[str, ...]:
    parts = ", ".join(f"{name} {value:g}" for name, value in verdict.parts.items())
    score = f"{verdict.score:g}" if verdict.parts else ""
    return verdict.host, verdict.state, score, verdict.reason or parts
