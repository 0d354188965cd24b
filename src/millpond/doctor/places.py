"""The directories that a host's files lie in, and what is already there of them."""

from pathlib import Path
from urllib.parse import urlsplit

from millpond.engine import Engine
from millpond.errors import MillpondError


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def is_here(engine: Engine) -> bool:
    """Whether they can be looked at. Where there is no pool yet to try it with, or none that can
    be used, the host's address tells."""
    try:
        return engine.files.are_here(engine.pool_plan.base.name)
    except MillpondError:
        return not urlsplit(engine.libvirtd.uri).hostname


def not_here(engine: Engine) -> str:
    """Why there is nothing to look at."""
    return "" if is_here(engine) else "the files of the host cannot be opened here"
