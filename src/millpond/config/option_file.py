"""Sets one option in a configuration file, and leaves every other byte of it as it is."""

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.config import DEFAULT_FILE
from millpond.errors import BadOption
from millpond.system import files

_SECTION = re.compile(rb"\[(?P<name>[^]]+)\]\s*")
_OPTION = re.compile(rb"(?P<name>[^\s=:#;]+)\s*[=:][ \t]*(?P<value>[^\r\n]*)")
_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Not made yet, so that it can be told before."""

    path: Path
    group: str
    option: str
    value: str
    before: str | None
    """None: the file does not set it."""

    def __str__(self) -> str:
        was = f"was {self.before}" if self.before else "was not set"
        return f"[{self.group}] {self.option} = {self.value} in {self.path} ({was})"


def plan_change(config_files: Sequence[Path], group: str, option: str, value: str) -> Change:
    """In the last file that sets the option, because that one rules; else in the first."""
    paths = list(config_files) or [DEFAULT_FILE]
    values = {path: find_option(_content(path), group, option) for path in paths}
    ruling = [path for path in paths if values[path] is not None] or paths[:1]
    path = ruling[-1]
    return Change(path=path, group=group, option=option, value=value, before=values[path])


def make_change(change: Change) -> None:
    """The file and its directory are made if they are missing; an old file keeps its owner."""
    path = change.path.resolve()  # a link stays one
    content = with_option(_content(path), change.group, change.option, change.value)
    try:
        old = path.stat() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, content, stat.S_IMODE(old.st_mode) if old else _MODE)
        if old:
            os.chown(path, old.st_uid, old.st_gid)
    except OSError as error:
        reason = f"cannot be written: {error.strerror}"
        raise BadOption(f"configuration file {change.path}", reason, "run this as root") from error


def find_option(content: bytes, group: str, option: str) -> str | None:
    """The value that a file gives an option; the last one rules."""
    lines = content.splitlines(keepends=True)
    place = _Place.of(option, lines, group)
    return None if place.line is None else _value(lines[place.line])


def with_option(content: bytes, group: str, option: str, value: str) -> bytes:
    lines = content.splitlines(keepends=True)
    place = _Place.of(option, lines, group)
    end = b"\r\n" if content.endswith(b"\r\n") else b"\n"
    wanted = f"{option} = {value}".encode() + end
    if place.line is not None:
        lines[place.line] = _with_value(lines[place.line], value)
    elif place.header is not None:
        lines[place.header] = lines[place.header].rstrip(b"\r\n") + end
        lines.insert(place.header + 1, wanted)
    else:
        if lines and not lines[-1].endswith(b"\n"):
            lines.append(end)
        lines += [*([end] if lines else []), f"[{group}]".encode() + end, wanted]
    return b"".join(lines)


@dataclass(frozen=True, slots=True)
class _Place:
    """Which lines of a file hold the group's header and the option, if any do."""

    header: int | None = None
    line: int | None = None

    @classmethod
    def of(cls, option: str, lines: Sequence[bytes], group: str) -> "_Place":
        header = line = None
        inside = False
        for number, text in enumerate(lines):
            if section := _SECTION.fullmatch(text):
                inside = section["name"].decode(errors="replace").lower() == group.lower()
                header = number if inside else header
            elif inside and (found := _OPTION.match(text)) and found["name"] == option.encode():
                line = number
        return cls(header, line)


def _value(line: bytes) -> str:
    found = _OPTION.match(line)
    return found["value"].decode(errors="replace").strip() if found else ""


def _with_value(line: bytes, value: str) -> bytes:
    found = _OPTION.match(line)
    assert found  # it is how the line was found
    return line[: found.start("value")] + value.encode() + line[found.end("value") :]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
