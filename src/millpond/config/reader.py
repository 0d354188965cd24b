"""Takes options out of a ConfigOpts and collects what is wrong with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from millpond.config.files import labelled, origin
from millpond.config.options import DEFAULT
from millpond.config.parsing import parse_path
from millpond.errors import BadConfiguration, BadInput, BadOption

T = TypeVar("T")


class Reader:
    """Notes what is wrong with a value instead of stopping at it, so that all is said at once."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.problems: list[BadOption] = []
        self.consequences: list[BadOption] = []
        self.conf = conf

    def complain(self, group: str, name: str, reason: str, advised: str = "") -> None:
        label = labelled(self.conf, group, name)
        self.problems.append(BadOption(label, reason, advised))

    def raise_problems(self) -> None:
        problems = self.problems or self.consequences
        if problems:
            raise BadConfiguration(tuple(problems))

    def take(self, group: str, name: str, parse: Callable[[Any], T], instead: T) -> T:
        """The parsed value; ``instead`` of it after a complaint, only to be able to go on."""
        try:
            return parse(self._value(group, name))
        except BadOption as error:
            self.complain(group, name, error.reason, error.advice)
        except BadInput as error:
            self.complain(group, name, str(error), error.advice)
        return instead

    def path(self, group: str, name: str) -> Path:
        """A path. What is wrong with a default is the fault of the options it is made of."""
        reader = Reader(self.conf)
        path = reader.take(group, name, parse_path, Path())
        blamed = self.problems if origin(self.conf, group, name) else self.consequences
        blamed.extend(reader.problems)
        return path

    def _value(self, group: str, name: str) -> Any:
        try:
            return self.conf[name] if group == DEFAULT else self.conf[group][name]
        except cfg.ConfigSourceValueError as error:
            raise BadOption(name, str(error.__context__ or error)) from error
        except (cfg.Error, RecursionError) as error:
            reason = "a $name in it does not exist or leads back to it"
            raise BadOption(name, reason) from error
