"""The directories that a host's files lie in, and what is already there of them."""

from pathlib import Path

from millpond.engine import Engine


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def explain_remote(engine: Engine) -> str:
    """Why there is nothing to look at."""
    return "" if engine.seems_local else "the files of the host cannot be opened here"
