"""What became of each test."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_CLASS = re.compile(r"setUpClass \((.+)\)")


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    status: Status
    seconds: float
    reason: str = ""
    """Why it was skipped, or the last words of its failure."""


Outcomes = Mapping[str, Outcome]


def read(lines: str) -> Outcomes:
    """What stream_to_json.py wrote, by the names of the tests. A class that could not be set up is
    one test, by a name of its own."""
    found = (json.loads(each) for each in lines.splitlines())
    return {untagged(each["name"]): _outcome(each) for each in found}


def regressions(ours: Outcomes, stock: Outcomes, listed: Iterable[str]) -> list[str]:
    """What passes with Nova's own driver, and does not with ours; what has yet to run there is not
    among them."""
    passed = {name for name, each in stock.items() if each.status is Status.PASSED}
    here = {name for name, each in ours.items() if each.status is Status.PASSED}
    return sorted(passed - here - {*unanswered(listed, ours)})


def unanswered(listed: Iterable[str], outcomes: Outcomes) -> list[str]:
    """Of the list, what has not run, or was not over when its time was."""
    classes = {match[1] for name in outcomes if (match := _CLASS.fullmatch(name))}
    names = {untagged(each) for each in listed}
    return sorted(name for name in names - {*outcomes} if name.rpartition(".")[0] not in classes)


def untagged(name: str) -> str:
    """Without what Tempest puts in brackets behind it."""
    return name.partition("[")[0]


def _outcome(found: Mapping[str, Any]) -> Outcome:
    status = Status(found["status"])
    reason = "" if status is Status.PASSED else _last_words(found["text"])
    return Outcome(status=status, seconds=found["seconds"], reason=reason)


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "")
