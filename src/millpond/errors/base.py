"""The base of every error, and the families that exit statuses belong to."""

from typing import ClassVar

from millpond.errors.tools import Tool


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
    exit_code = 2


class NotFound(MillpondError):
    exit_code = 3


class Conflict(MillpondError):
    exit_code = 4


class Refused(MillpondError):
    exit_code = 5


class HostProblem(MillpondError):
    exit_code = 6


class StateProblem(MillpondError):
    exit_code = 8
