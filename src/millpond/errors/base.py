"""The base of every error, and the families that exit statuses belong to."""

from enum import StrEnum
from typing import ClassVar


class Tool(StrEnum):
    DOCTOR = "millpond doctor"
    REPAIR = "millpond doctor --repair"
    ADOPT = "millpond doctor --adopt"
    COMPARE_PLACEMENT = "millpond doctor --placement"
    REPAIR_PLACEMENT = "millpond doctor --placement --repair"
    PROBE_KVM = "millpond doctor --probe-kvm"
    SERVER = "millpond server"
    IMAGES = "millpond image list"
    ADD_IMAGE = "millpond image add FILE"
    INDEX_IMAGE = "millpond image index FILE"
    REMOVE_IMAGE = "millpond image remove"
    NETWORKS = "millpond network list"
    START_NETWORK = "millpond network start"
    POOLS = "millpond pool list"
    VOLUMES = "millpond pool show"
    TEMPLATES = "millpond cache list"
    FETCH_TEMPLATE = "millpond cache fetch IMAGE"
    HOST = "millpond host"
    HOSTS = "millpond host list"
    REPORT_HOSTS = "millpond host list --refresh"
    OPTIONS = "millpond config sample"
    LEGACY = "millpond transition status"
    TRANSITION = "millpond transition run"
    EXPLAIN = "millpond explain IMAGE"


class MillpondError(Exception):
    message: ClassVar[str] = "{self.text}"
    hint: ClassVar[str] = "{self.advised}"
    exit_code: ClassVar[int] = 1
    text = "unexpected failure"
    advised = ""

    def __init__(self, text: str = text, advised: str = advised) -> None:
        """What is said in one place only, and caught by nobody in particular."""
        super().__init__(text, advised)
        self.text, self.advised = text, advised

    def __str__(self) -> str:
        return self.message.format(self=self)

    @property
    def advice(self) -> str:
        return self.hint.format(self=self, tool=Tool)


class BadInput(MillpondError):
    """An invalid argument, name, size or option, or an invalid configuration."""

    exit_code = 2


class NotFound(MillpondError):
    """Something that was named does not exist or cannot be read."""

    exit_code = 3


class Conflict(MillpondError):
    """It already exists, is in use, or something else is in the way."""

    exit_code = 4


class Refused(MillpondError):
    """Refused: an image or disk that is unsafe or not what it is declared to be, or something that
    this host or this version cannot do."""

    exit_code = 5


class HostProblem(MillpondError):
    """The host, its libvirt, its pools or their space cannot be used now."""

    exit_code = 6


class ToolProblem(MillpondError):
    """A tool that was started failed or exceeded its limits."""

    exit_code = 7


class StateProblem(MillpondError):
    """The state directory is not writable, or a record in it cannot be used."""

    exit_code = 8


class ServiceProblem(MillpondError):
    """A download failed, or a web server, Glance, Placement or a key manager does not answer as it
    should."""

    exit_code = 9


class GuestProblem(MillpondError):
    """The server is there, but its guest reports errors, is not up in time, powered itself off, or
    its agent does not answer."""

    exit_code = 10
