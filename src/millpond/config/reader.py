"""Takes options out of a ConfigOpts and collects what is wrong with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from millpond.config.files import labelled, origin
from millpond.config.options import DEFAULT, HOST_OPTIONS
from millpond.config.parsing import parse_path
from millpond.errors import BadConfiguration, BadInput, BadOption

T = TypeVar("T")


class Reader:
    """Notes what is wrong with a value instead of stopping at it, so that all is said at once."""

    def __init__(self, conf: cfg.ConfigOpts, host: str = "") -> None:
        """``host`` is the section of a host whose own values come first."""
        self.problems: list[BadOption] = []
        self.consequences: list[BadOption] = []
        self.conf = conf
        self._host = host

    def of_host(self, section: str) -> "Reader":
        """The same, as one host sees it; what is wrong is noted here."""
        reader = Reader(self.conf, section)
        reader.problems, reader.consequences = self.problems, self.consequences
        return reader

    def complain(self, group: str, name: str, reason: str, advised: str = "") -> None:
        label = labelled(self.conf, self.home(group, name), name)
        self.problems.append(BadOption(label, reason, advised))

    def raise_problems(self) -> None:
        """Each once: what hosts have in common is read for each of them."""
        problems = self.problems or self.consequences
        if problems:
            raise BadConfiguration(tuple({str(each): each for each in problems}.values()))

    def home(self, group: str, name: str) -> str:
        """The section that rules."""
        may_differ = self._host and any(each.name == name for each in HOST_OPTIONS)
        return self._host if may_differ and origin(self.conf, self._host, name) else group

    def is_set(self, group: str, name: str) -> bool:
        """By somebody, instead of by default."""
        return bool(origin(self.conf, self.home(group, name), name))

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
        reader = Reader(self.conf, self._host)
        path = reader.take(group, name, parse_path, Path())
        blamed = self.problems if self.is_set(group, name) else self.consequences
        blamed.extend(reader.problems)
        return path

    def _value(self, group: str, name: str) -> Any:
        home = self.home(group, name)
        try:
            return self.conf[name] if home == DEFAULT else self.conf[home][name]
        except cfg.ConfigSourceValueError as error:
            raise BadOption(name, str(error.__context__ or error)) from error
        except (cfg.Error, RecursionError) as error:
            reason = "a $name in it does not exist or leads back to it"
            raise BadOption(name, reason) from error
