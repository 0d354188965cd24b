"""The directories that a host's files lie in, and what is already there of them."""

from pathlib import Path


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())
