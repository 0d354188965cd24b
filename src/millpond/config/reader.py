"""The files that options come from, where a value was set, and taking options out of a ConfigOpts
while what is wrong with them is collected."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from oslo_config import cfg

from millpond.config.options import DEFAULT, HOST_OPTIONS, register
from millpond.config.settings import VirtTypeOption
from millpond.disks.selection import parse_images_type_mapping, split_entries
from millpond.errors import BadConfiguration, BadInput, BadOption
from millpond.model.formats import Backend, ImageFormat
from millpond.model.names import check_name

DEFAULT_FILE = Path("/etc/millpond/millpond.conf")

Sections = Mapping[str, Mapping[str, Sequence[str]]]
"""Of one file: section to option to the values that it is given, in order."""


def read(
    config_files: Sequence[Path] | None = None, default: Path = DEFAULT_FILE
) -> cfg.ConfigOpts:
    """The named files, the last one ruling; without any, the default one if it exists.

    They are read and free of syntax errors then; what they say is not looked at yet.
    """
    named = config_files or ([default] if _exists(default) else [])
    files = [path.absolute() for path in named]
    problems = [problem for path in files if (problem := _unusable(path))]
    if problems:
        raise BadConfiguration(tuple(problems))
    conf = cfg.ConfigOpts()
    register(conf)
    conf(
        args=[f"--config-file={path}" for path in files],
        default_config_files=[],
        default_config_dirs=[],
    )
    return conf


def files_of(conf: cfg.ConfigOpts) -> Sequence[Path]:
    return [Path(each) for each in conf.config_file or ()]


def sections_of(path: Path) -> Sections:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(path), sections).parse()
    return sections


def same_section(one: str, other: str) -> bool:
    """oslo.config folds the case of sections, except that of DEFAULT."""
    return one == other or (DEFAULT not in (one, other) and one.lower() == other.lower())


def origin(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """Who set an option: a file, an environment variable, the program; empty for its default."""
    try:
        location = conf.get_location(name, None if group == DEFAULT else group)
    except (cfg.Error, RecursionError):  # a wrong value has no location
        return _find_origin(conf, group, name)
    if location is None or location.location is cfg.Locations.opt_default:
        return ""
    if location.location is cfg.Locations.environment:
        return _variable(str(location.detail))
    return str(location.detail) if location.location.is_user_controlled else "the program"


def label_option(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """An option as errors name it: ``[group] name in file``."""
    place = origin(conf, group, name)
    return f"[{group}] {name} in {place}" if place else f"[{group}] {name}"


def _variable(name: str) -> str:
    return f"environment variable {name}"


def _find_origin(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """Looks where oslo.config looks: the environment first, then the last of the files."""
    variable = f"OS_{group}__{name}".upper()
    if variable in os.environ:
        return _variable(variable)
    for path in reversed(files_of(conf)):
        for section, options in sections_of(path).items():
            if same_section(section, group) and name in options:
                return str(path)
    return ""


def _exists(path: Path) -> bool:
    """Path.exists() would raise for a directory that is closed to us; reading it says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        pass
    return True


def _unusable(path: Path) -> BadOption | None:
    option = f"configuration file {path}"
    try:
        sections_of(path)
    except OSError as error:
        return BadOption(option, f"cannot be read: {error.strerror}", "check --config-file")
    except UnicodeDecodeError:
        return BadOption(option, "is not text", "check --config-file")
    except cfg.ParseError as error:
        return BadOption(option, f"line {error.lineno} is wrong: {error.msg}, {error.line!r}")
    return None


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
    return check_name("a storage pool", value)


def parse_pool_paths(value: str) -> Mapping[str, Path]:
    paths = parse_pairs("pool_paths", value, "pool:directory")
    return {parse_pool_name(pool): parse_path(path) for pool, path in paths.items()}


_ROLES = (
    "disk",
    "disk.local",
    "disk.eph*",
    "disk.swap",
    "disk.config",
    "disk.rescue",
    "disk.data*",
    "kernel",
    "ramdisk",
    "nvram",
    "cdrom",
)
"""The names that a server's disks can have; ``*`` stands for a number or a name."""


def parse_pool_by_disk_name(text: str) -> Mapping[str, str]:
    """``disk.swap:fast, disk.eph*:fast`` to the pool's name by the disk's name."""
    option = "[libvirt] pool_by_disk_name"
    pools = parse_pairs(option, text, "disk:pool")
    unknown = [each for each in pools if not _can_fit(each)]
    if unknown:
        reason = f"{_quoted(unknown)} can never be the name of a disk"
        raise BadOption(option, reason, f"disks: {', '.join(_ROLES)}")
    return dict(sorted(pools.items(), key=lambda pair: _looseness(pair[0])))


def _looseness(pattern: str) -> tuple[bool, int]:
    """A whole name comes before the beginning of one, and a long beginning before a short one."""
    return pattern.endswith("*"), -len(pattern)


def _can_fit(pattern: str) -> bool:
    """Some disk may have a name that the pattern takes."""
    if not pattern.endswith("*"):
        return any(fnmatchcase(pattern, role) for role in _ROLES)
    start = pattern[:-1]
    return any(role.startswith(start) or fnmatchcase(start, role) for role in _ROLES)


def parse_pairs(option: str, text: str, form: str) -> Mapping[str, str]:
    """``left:right`` entries between commas; what stands on the left stands there once."""
    pairs: dict[str, str] = {}
    problems: list[str] = []
    for entry in split_entries(text):
        left, _, right = (side.strip() for side in entry.partition(":"))
        if not left or not right:
            problems.append(f"{entry.strip()!r} is not of the form {form}")
        elif pairs.setdefault(left, right) != right:
            problems.append(f"{left!r} stands for both {pairs[left]!r} and {right!r}")
    if problems:
        raise BadOption(option, "; ".join(problems), f"write {form}, {form}")
    return pairs


def _quoted(names: list[str]) -> str:
    return ", ".join(repr(each) for each in names)


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

_NUMBERS = {
    re.compile(r"invalid literal for int\(\).*: (?P<value>'.*')"): "whole number",
    re.compile(r"could not convert string to float: (?P<value>'.*')"): "number",
}


def _explain(complaint: str) -> tuple[str, str]:
    """What oslo.config says of a value, and what to do about it."""
    advice = "a comment needs a line of its own" if re.search(r"\s[#;]", complaint) else ""
    for pattern, kind in _NUMBERS.items():
        if found := pattern.fullmatch(complaint):
            return f"{found['value']} is not a {kind}", advice
    return complaint, advice


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
        label = label_option(self.conf, self.home(group, name), name)
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
            raise BadOption(name, *_explain(str(error.__context__ or error))) from error
        except (cfg.Error, RecursionError) as error:
            reason = "a $name in it does not exist or leads back to it"
            raise BadOption(name, reason) from error
