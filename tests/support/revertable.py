"""A server whose resize is confirmed or reverted, whatever its root disk lies in."""

import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.support.guests import MicroGuest
from tests.support.killer import kill_at
from tests.support.millpond import Millpond
from tests.support.verbs import steps_of
from tests.support.waiting import wait_for

NAME = "web"
_TELLING = (
    ("resize save", "copy", "end"),
    ("resize confirm", "release", "begin"),
    ("resize revert", "domain", "end"),
    ("resize revert", "remove", "end"),
)
MOMENTS: list[Any] = [
    pytest.param(
        verb, step, moment, marks=() if (verb, step, moment) in _TELLING else pytest.mark.full
    )
    for verb in ("resize save", "resize confirm", "resize revert")
    for step in steps_of(verb)
    for moment in StepMoment
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revertable:
    """It has booted once, and is off."""

    millpond: Millpond
    read: Callable[[str], bytes]
    """A volume of its root disk."""
    names: Callable[[], Collection[str]]
    """Of all volumes that the server has."""
    size: int = 2
    """MiB of its root disk; its pool may make larger ones."""

    @property
    def larger(self) -> tuple[str, ...]:
        return ("--vcpus", "2", "--memory", "48M", "--disk", f"{2 * self.size}M")

    def create(self, guest: MicroGuest) -> "Revertable":
        self.millpond.ok("image", "add", guest.path, "--name", "guest")
        words = ("--image", "guest", "--memory", "32M", "--network", "none")
        made = self.millpond.json("server", "create", NAME, *words, "--disk", f"{self.size}M")
        self.millpond.wait_for_console(made["id"], "BOOTS 0001")
        self.millpond.ok("server", "stop", NAME, "--force")
        return self

    def boot(self) -> int:
        """How often it has, by its own disk, to which it writes that."""
        millpond, id = self.millpond, self.millpond.server(NAME).id
        before = millpond.console(id).count("READY")
        millpond.ok("server", "start", NAME)
        wait_for(lambda: millpond.console(id).count("READY") > before, 30)
        millpond.ok("server", "stop", NAME, "--force")
        return int(re.findall(r"BOOTS (\d{4})", millpond.console(id))[-1])

    def resize(self, *words: str) -> Any:
        return self.millpond.json("server", "resize", NAME, *words)

    def root(self) -> str:
        """Its bytes."""
        held = self.read(self.millpond.server(NAME).get_disk().volume)
        return hashlib.sha256(held).hexdigest()

    def volumes(self) -> list[str]:
        found = sorted(self.names())
        assert found == sorted(each.volume for each in self.millpond.server(NAME).disks)
        return found

    def sizes(self) -> tuple[int, int, int]:
        server = self.millpond.server(NAME)
        return server.flavor.vcpus, server.flavor.memory // MiB, server.get_disk().size // MiB


def check_starting_points(pond: Revertable) -> None:
    """Each revert gives the bytes of its own."""
    for count in (2, 3):
        start = pond.root()
        pond.resize(*pond.larger, "--revertable")
        assert pond.sizes() == (2, 48, 2 * pond.size)
        assert pond.boot() == count
        assert pond.root() != start
        assert len(pond.volumes()) == 3
        assert pond.resize("--revert")["resized_from"] is None
        assert (pond.root(), pond.sizes()) == (start, (1, 32, pond.size))
        assert len(pond.volumes()) == 2
        assert pond.boot() == count  # as if it had not booted since
    pond.resize(*pond.larger, "--revertable")
    assert pond.boot() == 4
    said = pond.millpond.ok("server", "resize", NAME, "--confirm")
    assert said.startswith("confirmed the resize of web")
    assert (len(pond.volumes()), pond.sizes()) == (2, (2, 48, 2 * pond.size))
    assert pond.boot() == 5
    assert "no problem" in pond.millpond.ok("doctor")


def check_killed(pond: Revertable, verb: str, step: str, moment: StepMoment) -> None:
    """It has one disk or the other."""
    start = pond.root()
    if verb != "resize save":
        pond.resize(*pond.larger, "--revertable")
        assert pond.boot() == 2
    resized = pond.root()
    kill_at(pond.millpond, verb, step, moment, verb, NAME)
    pond.millpond.ok("doctor", "--repair")
    server = pond.millpond.server(NAME)
    assert server.operation is None
    assert len(pond.volumes()) == (3 if server.resized_from else 2)
    if verb == "resize revert" and step in ("remove", "release"):
        assert (pond.root(), pond.sizes()) == (start, (1, 32, pond.size))
    else:
        assert pond.root() == resized
    if server.resized_from:
        pond.resize("--revert")
        assert (pond.root(), pond.sizes()) == (start, (1, 32, pond.size))
    assert "no problem" in pond.millpond.ok("doctor")
