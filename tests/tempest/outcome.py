"""What became of each test: from JUnit's XML to values."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

_CLASS = re.compile(r"setUpClass \((.+)\)")


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


_SIGNS = {"failure": Status.FAILED, "error": Status.FAILED, "skipped": Status.SKIPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    status: Status
    seconds: float
    reason: str = ""
    """Why it was skipped, or the last words of its failure."""


Outcomes = Mapping[str, Outcome]


def read(junit: str) -> Outcomes:
    """By the name of the test. A class that could not be set up is one test, by its own name."""
    cases = ElementTree.fromstring(junit).iter("testcase")  # Tempest's own, of this run
    return {_name(each): _outcome(each) for each in cases}


def regressions(ours: Outcomes, stock: Outcomes) -> list[str]:
    """What passes with Nova's own driver, and does not with ours."""
    return sorted(
        name
        for name, outcome in stock.items()
        if outcome.status is Status.PASSED
        and (name not in ours or ours[name].status is not Status.PASSED)
    )


def unanswered(listed: Iterable[str], outcomes: Outcomes) -> list[str]:
    """Of the list, what did not run, as its time was over."""
    classes = {match[1] for name in outcomes if (match := _CLASS.fullmatch(name))}
    names = {_untagged(each) for each in listed}
    return sorted(name for name in names - {*outcomes} if name.rpartition(".")[0] not in classes)


def _name(case: ElementTree.Element) -> str:
    words = (case.get("classname") or "", _untagged(case.get("name") or ""))
    return ".".join(word for word in words if word)


def _untagged(name: str) -> str:
    """Without what Tempest puts in brackets behind it."""
    return name.partition("[")[0]


def _outcome(case: ElementTree.Element) -> Outcome:
    seconds = float(case.get("time") or 0)
    for sign in case:
        if status := _SIGNS.get(sign.tag):
            return Outcome(status=status, seconds=seconds, reason=_reason(sign))
    return Outcome(status=Status.PASSED, seconds=seconds)


def _reason(sign: ElementTree.Element) -> str:
    text = sign.text or sign.get("message") or ""
    return next(_last_words(text), "")


def _last_words(text: str) -> Iterator[str]:
    lines = (line.strip() for line in reversed(text.splitlines()))
    return (line for line in lines if line.strip("}"))
