"""Takes options out of a ConfigOpts and collects what is wrong with them."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from oslo_config import cfg

from millpond.config.files import labelled, origin
from millpond.config.options import DEFAULT, HOST_OPTIONS
from millpond.config.settings import VirtTypeOption, parse_pairs
from millpond.disks.selection import parse_images_type_mapping, split_entries
from millpond.errors import BadConfiguration, BadInput, BadOption
from millpond.model.formats import Backend, ImageFormat
from millpond.model.names import checked_name

_MOST = 1_000_000
"""Of a ratio: nobody means more, and Placement counts in 32 bits."""

HANDLERS = "millpond.template_handlers"
"""The entry points that plug-ins add to (B40)."""


def parse_text(value: str | None) -> str:
    return (value or "").strip()


def parse_path(value: str) -> Path:
    if not value.startswith("/"):
        raise BadOption("path", f"{value!r} is not an absolute path")
    return Path(value)


def parse_uri(value: str | None) -> str:
    uri = parse_text(value) or "qemu:///system"
    if not urlsplit(uri).scheme:
        advised = "such as qemu:///system or qemu+ssh://host/system"
        raise BadOption("connection_uri", f"{uri!r} is not a URI", advised)
    return uri


def parse_virt_type(value: str) -> VirtTypeOption:
    """Nova's own definition of the option allows more (lxc), and has no auto."""
    try:
        return VirtTypeOption(value)
    except ValueError:
        allowed = ", ".join(VirtTypeOption)
        raise BadOption(
            "virt_type", f"Millpond runs no {value!r} guests", f"values: {allowed}"
        ) from None


def parse_mapping(value: str | Sequence[str]) -> Mapping[ImageFormat, Backend]:
    return parse_images_type_mapping(split_entries(value) if isinstance(value, str) else value)


def parse_pool_name(value: str) -> str:
    return checked_name("a storage pool", value)


def parse_pool_paths(value: str) -> Mapping[str, Path]:
    paths = parse_pairs("pool_paths", value, "pool:directory")
    return {parse_pool_name(pool): parse_path(path) for pool, path in paths.items()}


def parse_image_formats(value: Sequence[str]) -> frozenset[ImageFormat]:
    names = {each.strip().lower() for each in value}
    unknown = sorted(names - set(ImageFormat))
    if unknown:
        reason = f"{', '.join(unknown)}: no such format of images"
        raise BadOption("image_type_exclude_list", reason, f"formats: {', '.join(ImageFormat)}")
    return frozenset(ImageFormat(each) for each in names)


def parse_ratio(value: float | None) -> float | None:
    """None and 0 say nothing, as in Nova."""
    if value is not None and not 0 <= value <= _MOST:  # nan is neither
        raise BadOption("ratio", f"{value} is not possible", f"from 0 to {_MOST}")
    return value or None


def parse_extra_specs(text: str) -> Mapping[str, str]:
    """``trait:NAME=required, trait:OTHER=forbidden``, as flavours of Nova's have them."""
    pairs = [each.partition("=") for each in split_entries(text)]
    wrong = [
        f"{key}{equals}{value}" for key, equals, value in pairs if not key.strip() or not value
    ]
    if wrong:
        reason = f"{wrong[0].strip()!r} is not of the form name=value"
        raise BadOption("extra_specs", reason, "example: trait:HW_CPU_X86_AVX2=required")
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse_handler(value: str) -> str:
    choices = handler_names()
    if value not in choices:
        reason = f"there is no handler {value!r}"
        raise BadOption("template_image_handler", reason, f"handlers: {', '.join(choices)}")
    return value


def handler_names() -> list[str]:
    """The ways to prepare templates that are installed; none of them is loaded."""
    return sorted({each.name for each in entry_points(group=HANDLERS)})


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
