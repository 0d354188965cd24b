"""The options for people: a sample file, and what is in force and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from oslo_config import cfg

from millpond.config.options import (
    DEFAULT,
    HOST_PREFIX,
    NAMED_SECTIONS,
    OPTIONS,
    all_options,
    register_named,
)
from millpond.config.reader import handler_names, origin

MASK = "****"
_WIDTH = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOption:
    group: str
    name: str
    value: str
    origin: str
    """A file, an environment variable, or ``default``."""


def list_options(conf: cfg.ConfigOpts) -> tuple[ShownOption, ...]:
    """Every option with its value and who set it; also where the value is not valid. Of a host,
    those that it has of its own."""
    named = {
        group: options
        for prefix, options in NAMED_SECTIONS.items()
        for group in register_named(conf, prefix)
    }
    return tuple(
        ShownOption(
            group=group,
            name=option.name,
            value=_value(conf, group, option),
            origin=origin(conf, group, option.name) or "default",
        )
        for group, options in {**OPTIONS, **named}.items()
        for option in options
        if not group.startswith(HOST_PREFIX) or origin(conf, group, option.name)
    )


def _value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> str:
    try:
        value = (conf if group == DEFAULT else conf[group])[option.name]
    except (cfg.Error, RecursionError):
        return "not valid"
    return MASK if option.secret and value else _format(value)


def _format(value: object) -> str:
    """As it would stand in a file."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def sample() -> str:
    """A file that changes nothing: every option, commented out, at its default."""
    lines = ["# Millpond's configuration. Lines that begin with # are comments.", ""]
    for group, options in all_options().items():
        lines += [f"{'' if group in OPTIONS else '# '}[{group}]", ""]
        for option in options:
            default = f"#{option.name} = {_format(option.default)}".rstrip()
            lines += [*_describe(option), default, ""]
    return "\n".join(lines)


def _describe(option: cfg.Opt) -> Iterator[str]:
    for line in wrap(option.help or "", _WIDTH):
        yield f"# {line}"
    choices = _choices(option)
    if choices:
        yield f"# Allowed: {', '.join(choices)}"


def _choices(option: cfg.Opt) -> list[str]:
    if option.name == "template_image_handler":
        return handler_names()
    return list(getattr(option.type, "choices", None) or ())
