"""A server's own directory on its host: the log of its console."""

from pathlib import Path

from millpond.errors import StateNotWritable
from millpond.model.names import ServerId

CONSOLE_LOG = "console.log"


def make(instances: Path, id: ServerId) -> Path:
    """The directory, and the path of the console's log in it."""
    path = instances / id
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o711)
    except OSError as error:
        raise StateNotWritable(path, error.strerror or str(error)) from error
    return path / CONSOLE_LOG


def console_log(instances: Path, id: ServerId) -> Path:
    return instances / id / CONSOLE_LOG


def remove(instances: Path, id: ServerId) -> None:
    """Only what we put there; anything else stays, and keeps the directory."""
    path = instances / id
    try:
        for each in path.glob(f"{CONSOLE_LOG}*"):  # virtlogd rotates it
            if each.is_file():
                each.unlink(missing_ok=True)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    except OSError as error:
        raise StateNotWritable(path, error.strerror or str(error)) from error
