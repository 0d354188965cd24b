"""What became of one driver's tests so far, in as many sessions as it takes."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.openstack.environment import tempest
from tests.tempest.outcome import Outcome, Outcomes, Status, read, unanswered, untagged

_STREAM_TO_JSON = Path(__file__).with_name("stream_to_json.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    directory: Path
    driver: str

    @property
    def stream(self) -> Path:
        """What Tempest says while it runs."""
        return self.directory / f"{self.driver}.subunit"

    @property
    def list(self) -> Path:
        """The names of all tests, with what Tempest puts in brackets behind them."""
        return self.directory / f"{self.driver}.list"

    @property
    def _file(self) -> Path:
        return self.directory / f"{self.driver}.results"

    def outcomes(self) -> Outcomes:
        return read(self._file.read_text()) if self._file.exists() else {}

    def listed(self) -> Sequence[str]:
        return self.list.read_text().splitlines() if self.list.exists() else []

    def take(self) -> None:
        """What the last session left, however it ended. Its stream stays under another name, with
        what the tests logged."""
        if self.stream.exists():
            self._write({**self.outcomes(), **read(_readable(self.stream.read_bytes()))})
            self.stream.rename(
                self.stream.with_stem(f"{self.driver}-{datetime.now(UTC):%FT%H%M%S}")
            )

    def keep_passed(self) -> None:
        """All others are asked for once more."""
        found = self.outcomes().items()
        self._write({name: each for name, each in found if each.status is Status.PASSED})

    def missing(self) -> Sequence[str]:
        """Of the list, as Tempest wants them."""
        names = {*unanswered(self.listed(), self.outcomes())}
        return [each for each in self.listed() if untagged(each) in names]

    def _write(self, outcomes: Outcomes) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(
            "".join(f"{_line(name, each)}\n" for name, each in sorted(outcomes.items()))
        )
        new.replace(self._file)


def _line(name: str, outcome: Outcome) -> str:
    found = {"name": name, "status": outcome.status, "seconds": round(outcome.seconds, 1)}
    return json.dumps({**found, "text": outcome.reason})


def _readable(stream: bytes) -> str:
    """A line of JSON for each test of it that has ended."""
    words = (tempest("python"), _STREAM_TO_JSON)
    return subprocess.run(words, input=stream, stdout=subprocess.PIPE, check=True).stdout.decode()
