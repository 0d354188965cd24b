"""Files and records of ours, tools that we start, and what is fetched."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from millpond.errors.base import (
    BadInput,
    NotFound,
    ServiceProblem,
    StateProblem,
    Tool,
    ToolProblem,
)

NOT_ROOT = (
    "run it as root (sudo), or with a state directory of your own and qemu:///session: the page "
    f"'Without root' of the manual says how; '{Tool.DOCTOR}' shows the owner"
)


@dataclass(eq=False)
class FileNotReadable(NotFound):
    path: Path
    reason: str
    message = "cannot read {self.path}: {self.reason}"
    hint = "check the path and its permissions"


@dataclass(eq=False)
class ToolFailed(ToolProblem):
    tool: str
    reason: str
    status: int = 0
    """Its exit status, which for some tools is the error's number."""
    message = "{self.tool} failed: {self.reason}"
    hint = "run the command again with -vv to see how it was called"


@dataclass(eq=False)
class StateNotWritable(StateProblem):
    path: Path
    reason: str
    message = "cannot write to the state directory at {self.path}: {self.reason}"
    hint = "{self.advised}"

    @property
    def advised(self) -> str:  # type: ignore[override]
        if self.reason == os.strerror(errno.EROFS):
            return "mount that file system so that it can be written to"
        return NOT_ROOT


@dataclass(eq=False)
class StateNotReadable(StateProblem):
    path: Path
    message = "the state directory {self.path} is not yours to read"
    hint = NOT_ROOT


class UnreadableRecord(StateProblem):
    path: Path


@dataclass(eq=False)
class DamagedRecord(UnreadableRecord):
    path: Path
    reason: str
    message = "the record {self.path} cannot be used: {self.reason}"
    hint = "'{tool.DOCTOR}' says what it belongs to and what can be rebuilt"


@dataclass(eq=False)
class NewerRecord(UnreadableRecord):
    """It is not damaged: nothing takes its place."""

    path: Path
    schema: int
    known: int
    message = (
        "the record {self.path} was written by a newer Millpond "
        "(schema {self.schema}, known {self.known})"
    )
    hint = "use that version of Millpond again"


@dataclass(eq=False)
class FetchFailed(ServiceProblem):
    url: str
    """Without credentials: what is shown and logged."""
    reason: str
    message = "cannot fetch {self.url}: {self.reason}"
    hint = "check the address, and from this host its network, proxy and certificates"


class FetchInterrupted(FetchFailed):
    """Another try may go better."""

    hint = "try again later; [http] in the configuration says how long and how often to try"


class FetchForbidden(FetchFailed):
    """It is there, but not for us."""

    hint = "check the user and the password; the policy of a Glance has the rule download_image"


class CannotResume(FetchInterrupted):
    """What was fetched so far is of no use: begin again."""


@dataclass(eq=False)
class BadSize(BadInput):
    text: str
    message = "{self.text!r} is not a size"
    hint = "write a number with its unit, such as 512M, 10G or 1.5T"


@dataclass(eq=False)
class BadName(BadInput):
    kind: str
    name: str
    message = "{self.name!r} cannot be the name of {self.kind}"
    hint = (
        "begin with a letter or a digit and continue with letters, digits, '.', '-', '_', '+' or "
        "spaces, 200 at the most"
    )


@dataclass(eq=False)
class BadOption(BadInput):
    option: str
    reason: str
    advised: str = ""
    message = "{self.option}: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class BadConfiguration(BadInput):
    """Every error of the configuration at once (B9)."""

    problems: tuple[BadOption, ...]
    hint = "'{tool.OPTIONS}' prints every option with what it allows"

    def __str__(self) -> str:
        return "\n".join(
            f"{each}{f' ({each.advice})' if each.advice else ''}" for each in self.problems
        )


@dataclass(eq=False)
class DiskTooLarge(BadInput):
    asked: str
    most: str
    message = "a disk of {self.asked} is too large: {self.most} is the most"
    hint = "ask for less"


@dataclass(eq=False)
class DiskTooSmall(BadInput):
    asked: str
    needed: str
    image: str
    enough: str
    message = (
        "a disk of {self.asked} is smaller than image {self.image!r}, which needs {self.needed}"
    )
    hint = "ask for --disk {self.enough} or more, or leave --disk out"
