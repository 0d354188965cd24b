"""What was typed or configured."""

from dataclasses import dataclass

from millpond.errors.base import BadInput


@dataclass(eq=False)
class BadSize(BadInput):
    text: str
    message = "{self.text!r} is not a size"
    hint = "write a number with an optional unit, such as 512M, 10G or 1.5T"


@dataclass(eq=False)
class BadName(BadInput):
    kind: str
    name: str
    message = "{self.name!r} cannot be the name of {self.kind}"
    hint = (
        "begin with a letter or a digit and go on with letters, digits, '.', '-', '_', '+' or "
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
class DiskTooSmall(BadInput):
    asked: str
    needed: str
    image: str
    enough: str
    message = (
        "a disk of {self.asked} is smaller than image {self.image!r}, which needs {self.needed}"
    )
    hint = "ask for --disk {self.enough} or more, or leave --disk out"
