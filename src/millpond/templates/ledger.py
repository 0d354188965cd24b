"""The records of templates: each there as a whole or not at all, whenever a process is killed.

Each carries its own length and digest, so that one that is cut off or was changed is known.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from millpond.errors import DamagedRecord, StateNotWritable, VolumeNotFound
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.model.volume import VolumeSpec
from millpond.system import files, streams

_ENDING = ".json"
_NEXT = ".json.next"


class Ledger(Protocol):
    def names(self) -> Sequence[str]:
        """Of all records, however damaged."""
        ...

    def has(self, name: str) -> bool:
        """However damaged it is."""
        ...

    def read(self, name: str) -> bytes | None:
        """None if there is none. Raises DamagedRecord."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """In place of what there was."""
        ...

    def remove(self, name: str) -> None:
        """One that is gone already is no error."""
        ...

    def place(self, name: str) -> Path:
        """Where it is, for people."""
        ...


class FileLedger:
    """A directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        found = self._directory.glob(f"[!.]*{_ENDING}")
        return sorted(path.name.removesuffix(_ENDING) for path in found)

    def has(self, name: str) -> bool:
        return self.place(name).exists()

    def read(self, name: str) -> bytes | None:
        try:
            return _opened(self.place(name).read_bytes(), self.place(name))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        write_beside(self.place(name), _sealed(content))

    def remove(self, name: str) -> None:
        files.remove(self.place(name))

    def place(self, name: str) -> Path:
        return self._directory / f"{name}{_ENDING}"


class VolumeLedger:
    """The same directory as a pool, of a host whose files are not here. libvirt renames nothing,
    and fills a volume bit by bit: so a record is written twice, and while the one is not whole,
    the other one is."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def names(self) -> list[str]:
        found = {_name(volume) for volume in self._pool.names()}
        return sorted(name for name in found if name and self.has(name))

    def has(self, name: str) -> bool:
        """The second is begun only when the first is whole: without it, one that is damaged was
        never finished."""
        if self._pool.find(f"{name}{_ENDING}"):
            return True
        with suppress(DamagedRecord):
            return self._found(f"{name}{_NEXT}") is not None
        return False

    def read(self, name: str) -> bytes | None:
        try:
            if found := self._found(f"{name}{_ENDING}"):
                return found
        except DamagedRecord:
            if found := self._found(f"{name}{_NEXT}"):
                return found
            raise
        with suppress(DamagedRecord):
            return self._found(f"{name}{_NEXT}")
        return None

    def write(self, name: str, content: bytes) -> None:
        sealed = _sealed(content)
        for volume in (f"{name}{_NEXT}", f"{name}{_ENDING}"):
            self._delete(volume)
            spec = VolumeSpec(name=volume, format=DiskFormat.RAW, capacity=len(sealed))
            self._pool.create(spec)
            self._pool.upload(volume, sealed)
        self._delete(f"{name}{_NEXT}")

    def remove(self, name: str) -> None:
        """An older one must not come to light when the other is gone."""
        self._delete(f"{name}{_NEXT}")
        self._delete(f"{name}{_ENDING}")

    def place(self, name: str) -> Path:
        return Path(self._pool.path) / f"{name}{_ENDING}"

    def _found(self, volume: str) -> bytes | None:
        try:
            content = b"".join(streams.plain(self._pool.pieces(volume)))
        except VolumeNotFound:
            return None
        return _opened(content, Path(self._pool.path) / volume)

    def _delete(self, volume: str) -> None:
        with suppress(VolumeNotFound):
            self._pool.delete(volume)


def write_beside(path: Path, content: bytes) -> None:
    """A file next to a cache, whose directory is made."""
    make_directory(path.parent)
    with _writing(path, path.parent):
        files.write_atomically(path, content)


def make_directory(path: Path) -> None:
    there = next(each for each in path.parents if each.exists())
    with _writing(path, there):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def _writing(path: Path, directory: Path) -> Iterator[None]:
    try:
        with files.explaining_lack_of_space(directory):
            yield
    except OSError as error:
        raise StateNotWritable(path, error.strerror or str(error)) from error


def _name(volume: str) -> str:
    """Of the record that a volume holds; empty if it holds none."""
    for ending in (_NEXT, _ENDING):
        if volume.endswith(ending):
            return volume.removesuffix(ending)
    return ""


def _sealed(content: bytes) -> bytes:
    head = {"length": len(content), "sha256": _digest(content)}
    return json.dumps(head).encode() + b"\n" + content


def _opened(sealed: bytes, path: Path) -> bytes:
    head, _, content = sealed.partition(b"\n")
    try:
        stated = json.loads(head)
        intact = (stated["length"], stated["sha256"]) == (len(content), _digest(content))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedRecord(path, "its first line is damaged") from error
    if not intact:
        raise DamagedRecord(path, "its content is not what it was when it was written")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
