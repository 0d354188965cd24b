"""Files and records of ours, tools that we start, and what is fetched."""

from dataclasses import dataclass
from pathlib import Path

from millpond.errors.base import NotFound, ServiceProblem, StateProblem, ToolProblem


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
    hint = "run as root, or as a member of its group; '{tool.DOCTOR}' shows its owner"


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
