"""Options in the files that nothing reads: typing errors, and those that belong to Nova.

The file may be a nova.conf, whose own options are none of our business. What resembles an
option of ours closely enough is a typing error in any file: obeying the rest of the file and
dropping that line would put disks in the wrong place. Measured with Nova 34: in our groups
none of its options is nearer than 0.87 to one of ours, and ``images_type_maping`` is at 0.97.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from oslo_config import cfg

from millpond.config.files import files_of, same_section, sections_of
from millpond.config.options import NAMED_SECTIONS, OPTIONS
from millpond.errors import BadOption

_NEAR = 0.9
_NOVAS = {("glance", "rbd_user")}  # and of ours in another section
_CASTELLANS = frozenset({"key_manager", "barbican", "barbican_service_user", "vault"})
_NEAR_SECTION = 0.8  # sections are short, and no section of Nova's is nearer than 0.72


def mistyped(conf: cfg.ConfigOpts) -> Iterator[BadOption]:
    """Every section or option that was surely meant to be another one."""
    for path, section, name in _unread(conf):
        reason = _mistake(section, name)
        if reason:
            label = f"[{section}] {name}".rstrip()
            yield BadOption(f"{label} in {path}", "nothing reads it", reason)


def unread(conf: cfg.ConfigOpts) -> Iterator[str]:
    """The other options without a reader, in files that are ours: a nova.conf would fill the
    screen. That has sections besides ours, or names Nova's driver."""
    foreign = {path for path, _, name in _unread(conf) if name in ("", "compute_driver")}
    for path, section, name in _unread(conf):
        if path not in foreign and not _mistake(section, name):
            yield f"[{section}] {name} in {path} is not read"


def _unread(conf: cfg.ConfigOpts) -> Iterator[tuple[Path, str, str]]:
    """File, section and option; no option where the whole section is not ours."""
    for path in files_of(conf):
        for section, options in sections_of(path).items():
            known = _options_of(section)
            if section.lower() in _CASTELLANS:
                continue
            if not known:
                yield path, section, ""
            else:
                yield from ((path, section, name) for name in options if name not in known)


def _mistake(section: str, name: str) -> str:
    """What was probably meant, or nothing."""
    if not name:
        return _mistaken_section(section)
    known = _options_of(section)
    near = get_close_matches(name.lower(), known, 1, _NEAR)
    if near:
        return f"did you mean {near[0]}?"
    if prefix := _prefix(section):
        return f"options of a {prefix.rstrip(':')}: {', '.join(known)}"
    if (section.lower(), name) in _NOVAS:
        return ""
    home = next((group for group in OPTIONS if name in _options_of(group)), "")
    return f"it belongs in the section [{home}]" if home else ""


def _mistaken_section(section: str) -> str:
    stem, _, rest = section.partition(":")
    sections = {each.lower(): each for each in OPTIONS}
    sections |= {each.rstrip(":"): f"{each}{rest or 'NAME'}" for each in NAMED_SECTIONS}
    near = get_close_matches(stem.lower(), sections, 1, _NEAR_SECTION)
    return f"did you mean the section [{sections[near[0]]}]?" if near else ""


def _options_of(section: str) -> list[str]:
    """The names that are read in a section; none if the section is not ours."""
    if prefix := _prefix(section):
        return [option.name for option in NAMED_SECTIONS[prefix]]
    known = []
    for group, options in OPTIONS.items():
        for option in options:
            if same_section(group, section):
                known.append(option.name)
            known.extend(
                old.name or option.name
                for old in option.deprecated_opts
                if same_section(old.group or group, section)
            )
    return known


def _prefix(section: str) -> str:
    """Of a section that the operator has named."""
    return next((each for each in NAMED_SECTIONS if section.startswith(each)), "")
