"""The directories that a host's files lie in, and what is already there of them."""

from pathlib import Path

from millpond.hosts.host import Host


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def explain_remote(host: Host) -> str:
    """Why there is nothing to look at."""
    return "" if host.seems_local else "the files of the host cannot be opened here"
