"""Where the bytes of templates lie: files that we can open, or volumes that only libvirt reaches.

Both are the same directory pool of the host, and hold templates and nothing else.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from millpond.errors import NeedsHostFiles, PoolUnusable, VolumeExists, VolumeNotFound
from millpond.libvirt.host_files import is_marker
from millpond.libvirt.pool import Pool
from millpond.libvirt.transfer import bytes_of, download
from millpond.model.formats import DiskFormat
from millpond.model.template import Prepared
from millpond.model.volume import Volume, VolumeSpec
from millpond.system import files
from millpond.system.files import CHUNK, Progress, silent

Note = Callable[[str], None]
"""Told by what a template is known to be the one that we put there. What it is told is durable
when it returns."""


class Left(StrEnum):
    """What an attempt of ours has left under a template's name."""

    NOTHING = "nothing"
    """Whatever is there was put there by somebody else, or cannot be proven to be ours."""
    PARTIAL = "partial"
    WHOLE = "whole"


class Shelf(Protocol):
    @property
    def uploads(self) -> bool:
        """Whether a template's bytes are carried to it when it enters."""
        ...

    def refuse(self, format: DiskFormat) -> None:
        """Raises NeedsHostFiles for what could not be served from here, or never be removed."""
        ...

    def names(self) -> Sequence[str]: ...

    def has(self, name: str) -> bool: ...

    def length(self, name: str) -> int | None:
        """In bytes; None if there is none."""
        ...

    def space(self, name: str) -> int:
        """What its removal would free; of what is not there, nothing."""
        ...

    def cost(self, part: Path) -> int:
        """What a file takes here once it has entered."""
        ...

    def take(self, image: Path, part: Path, progress: Progress) -> Prepared:
        """The bytes of a trusted image of this machine, for a template that will enter."""
        ...

    def enter(
        self, part: Path, name: str, over: Left, note: Note, progress: Progress = silent
    ) -> None:
        """A complete file of this machine becomes a template: root's, read-only, and durable as
        far as we can see to that. ``over``: what of ours is there; disks may be backed by a
        whole one. Raises VolumeExists for what is not ours, which stays as it is."""
        ...

    def proof(self, name: str) -> str:
        """By what a template that is there is known again."""
        ...

    def left(self, name: str, proof: str) -> Left:
        """What is there now, by the proof that was last noted."""
        ...

    def bytes_of(self, name: str) -> Iterator[bytes]:
        """Raises VolumeNotFound."""
        ...

    def keep(self, name: str, target: Path) -> None:
        """A copy of its bytes in a new file of this machine."""
        ...

    def remove(self, name: str) -> None:
        """One that is gone already is no error."""
        ...


class FileShelf:
    uploads = False

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._directory = Path(pool.path)

    def refuse(self, format: DiskFormat) -> None:
        """Everything can be a file."""

    def names(self) -> list[str]:
        names = (path.name for path in self._directory.glob("*"))
        return sorted(name for name in names if not is_marker(name))

    def has(self, name: str) -> bool:
        return (self._directory / name).exists()

    def length(self, name: str) -> int | None:
        try:
            return (self._directory / name).stat().st_size
        except FileNotFoundError:
            return None

    def space(self, name: str) -> int:
        return files.own_space(self._directory / name)

    def cost(self, part: Path) -> int:
        return files.own_space(part)

    def take(self, image: Path, part: Path, progress: Progress) -> Prepared:
        return files.link_or_copy(image, part, progress)

    def enter(
        self, part: Path, name: str, over: Left, note: Note, progress: Progress = silent
    ) -> None:
        """In one step, after which nothing is left to be done."""
        with open(part, "rb") as file:
            os.fchmod(file.fileno(), 0o444)
            os.fchown(file.fileno(), os.geteuid(), os.getegid())
            files.sync(file.fileno())
        note(_identity(part))
        put = files.move_to_new if over is Left.NOTHING else os.rename
        try:
            put(part, self._directory / name)
            files.sync_directory(self._directory)
        except FileNotFoundError as error:
            reason = f"its directory {self._directory} is missing"
            raise PoolUnusable(self._pool.name, reason) from error
        except FileExistsError as error:
            raise VolumeExists(self._pool.name, name) from error

    def proof(self, name: str) -> str:
        return _identity(self._directory / name)

    def left(self, name: str, proof: str) -> Left:
        """The file that we moved there is the same inode, and nobody has written to it since."""
        try:
            return Left.WHOLE if proof == self.proof(name) else Left.NOTHING
        except FileNotFoundError:
            return Left.NOTHING

    def bytes_of(self, name: str) -> Iterator[bytes]:
        try:
            with open(self._directory / name, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except FileNotFoundError as error:
            raise VolumeNotFound(self._pool.name, name) from error

    def keep(self, name: str, target: Path) -> None:
        files.link_or_copy(self._directory / name, target)

    def remove(self, name: str) -> None:
        files.remove(self._directory / name)


class VolumeShelf:
    uploads = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def refuse(self, format: DiskFormat) -> None:
        """libvirt takes a file of ploop's for a directory, and neither reads nor removes it."""
        if not format.libvirt_makes:
            reason = "libvirt cannot make one"
            raise NeedsHostFiles(f"a {format} template", reason, self._pool.path)

    def names(self) -> list[str]:
        return [name for name in self._pool.names() if not is_marker(name)]

    def has(self, name: str) -> bool:
        return self._pool.find(name) is not None

    def length(self, name: str) -> int | None:
        found = self._pool.find(name)
        return found.length if found else None

    def space(self, name: str) -> int:
        found = self._pool.find(name)
        return found.allocation if found else 0

    def cost(self, part: Path) -> int:
        return files.taken_space(part)

    def take(self, image: Path, part: Path, progress: Progress) -> Prepared:
        """What counts is the way to the host, and that is still to come."""
        files.link_or_copy(image, part)
        return Prepared.UPLOAD

    def enter(
        self, part: Path, name: str, over: Left, note: Note, progress: Progress = silent
    ) -> None:
        """Until it has its record, nobody takes what is there for a template."""
        if over is Left.WHOLE:
            reason = "disks may stand on it, and libvirt puts no volume into another's place"
            path = self._pool.get(name).path
            raise NeedsHostFiles(f"replacing template {name}", reason, path)
        size = part.stat().st_size
        if over is Left.NOTHING:
            self._create(name, size, note)
        elif (self.length(name) or 0) > size:
            raise VolumeExists(self._pool.name, name)
        note(f"{_FILLING} {size}")
        self._pool.send(name, part, progress)
        note(self.proof(name))

    def proof(self, name: str) -> str:
        return _seen(self._pool.get(name))

    def left(self, name: str, proof: str) -> Left:
        """libvirt tells no inode. It makes no volume over a file that is there, so what was noted
        as being filled was made by us, and is known by its mode and length (at a hole libvirt cuts
        it off for a while); one that was never written to holds nothing; a whole one bears the
        time at which we ended."""
        found = self._pool.find(name)
        if found is None or not found.read_only:
            return Left.NOTHING
        if proof == _seen(found):
            return Left.WHOLE
        stage, _, size = proof.partition(" ")
        is_empty = stage == _EMPTY and not found.allocation and found.length == int(size)
        is_part = stage == _FILLING and found.length <= int(size)
        return Left.PARTIAL if is_empty or is_part else Left.NOTHING

    def bytes_of(self, name: str) -> Iterator[bytes]:
        return bytes_of(self._pool, name)

    def keep(self, name: str, target: Path) -> None:
        download(self._pool, name, target)

    def remove(self, name: str) -> None:
        with suppress(VolumeNotFound):
            self._pool.delete(name)

    def _create(self, name: str, size: int, note: Note) -> None:
        spec = VolumeSpec(name=name, format=DiskFormat.RAW, capacity=size, read_only=True)
        note(f"{_EMPTY} {size}")
        try:
            self._pool.create(spec)
        except VolumeExists:
            note("")
            raise


_EMPTY, _FILLING = "empty", "filling"


def _seen(volume: Volume) -> str:
    return f"whole {volume.length} {volume.changed}"


def _identity(path: Path) -> str:
    found = path.lstat()
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"
