"""What lies next to a cache: locks, and the directories of templates that are on their way."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from millpond.errors import StateNotWritable
from millpond.system import files
from millpond.system.locks import Locks


class Sidecar:
    def __init__(self, sidecar: Path) -> None:
        self.sidecar = sidecar
        self._incoming = sidecar / "incoming"
        self._streams = sidecar / "streams"
        self._locks = Locks(sidecar / "locks")

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Held while a template is prepared, looked up for use, or removed."""
        return self._locks.hold(f"template:{name}")

    def lock_now(self, name: str) -> AbstractContextManager[None]:
        """The same, or Busy at once."""
        return self._locks.hold_now(f"template:{name}", f"template {name}")

    def lock_room(self) -> AbstractContextManager[None]:
        """Held from when a template is found to fit into the cache until it is there."""
        return self._locks.hold("room")

    def lock_uses(self, owner: str) -> AbstractContextManager[None]:
        """Held while a host's lease is read and written; taken after a template's lock."""
        return self._locks.hold(f"uses:{owner}")

    def is_worked_on(self, name: str) -> bool:
        return self._locks.is_held(f"template:{name}")

    def write(self, path: Path, content: bytes) -> None:
        """A file of the sidecar."""
        write_file(path, content)

    def stream(self, name: str) -> Path:
        """The directory of a template that arrives while it is used, whether it exists or not."""
        return self._streams / name

    def streams(self) -> list[str]:
        """Names of templates that have one."""
        return sorted(path.name for path in self._streams.glob("[!.]*"))

    def workspace(self, name: str) -> Path:
        """Where a template is made before it enters the pool."""
        path = self.incoming(name)
        make_directory(path)
        return path

    def incoming(self, name: str) -> Path:
        """The path of its workspace, whether that exists or not."""
        return self._incoming / name

    def discard_workspace(self, name: str) -> None:
        shutil.rmtree(self.incoming(name), ignore_errors=True)

    def is_unfinished(self, name: str) -> bool:
        return self.incoming(name).exists()

    def unfinished(self) -> list[str]:
        """Names of templates whose preparation or removal was begun and has not ended."""
        return sorted(path.name for path in self._incoming.glob("[!.]*"))


def write_file(path: Path, content: bytes) -> None:
    """Its directory is made if it is missing."""
    make_directory(path.parent)
    with _explaining_failure(path, path.parent):
        files.write_atomically(path, content)


def make_directory(path: Path) -> None:
    there = next(each for each in path.parents if each.exists())
    with _explaining_failure(path, there):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def _explaining_failure(path: Path, directory: Path) -> Iterator[None]:
    try:
        with files.explaining_lack_of_space(directory):
            yield
    except OSError as error:
        raise StateNotWritable(path, error.strerror or str(error)) from error
