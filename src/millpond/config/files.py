"""The files that options come from: reading them, and where a value was set."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from millpond.config.options import DEFAULT, register
from millpond.errors import BadConfiguration, BadOption

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
        return _searched(conf, group, name)
    if location is None or location.location is cfg.Locations.opt_default:
        return ""
    if location.location is cfg.Locations.environment:
        return _variable(str(location.detail))
    return str(location.detail) if location.location.is_user_controlled else "the program"


def labelled(conf: cfg.ConfigOpts, group: str, name: str) -> str:
    """An option as errors name it: ``[group] name in file``."""
    place = origin(conf, group, name)
    return f"[{group}] {name} in {place}" if place else f"[{group}] {name}"


def _variable(name: str) -> str:
    return f"environment variable {name}"


def _searched(conf: cfg.ConfigOpts, group: str, name: str) -> str:
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
