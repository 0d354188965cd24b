"""Templates that are files of this machine, and so are their records."""

import os
from collections.abc import Iterator
from pathlib import Path

from millpond.errors import PoolUnusable, VolumeExists, VolumeNotFound
from millpond.libvirt.locality import is_marker
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.system import files
from millpond.system.files import CHUNK, Progress, silent
from millpond.templates.store import RECORD, Left, Note, TemplateStore, unseal, write_file


class LocalTemplates(TemplateStore):
    local = True

    def __init__(self, pool: Pool) -> None:
        cache = Path(pool.path)
        super().__init__(pool, cache.with_name(f"{cache.name}.millpond"))

    def has_record(self, name: str) -> bool:
        return self._record_path(name).exists()

    def forget(self, name: str) -> None:
        files.remove(self._record_path(name))

    def refuse(self, format: DiskFormat) -> None:
        """Everything can be a file."""

    def has(self, name: str) -> bool:
        return (self.cache / name).exists()

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
            put(part, self.cache / name)
            files.sync_directory(self.cache)
        except FileNotFoundError as error:
            reason = f"its directory {self.cache} is missing"
            raise PoolUnusable(self.pool.name, reason) from error
        except FileExistsError as error:
            raise VolumeExists(self.pool.name, name) from error

    def proof(self, name: str) -> str:
        return _identity(self.cache / name)

    def left(self, name: str, proof: str) -> Left:
        """The file that we moved there is the same inode, and nobody has written to it since."""
        try:
            return Left.WHOLE if proof == self.proof(name) else Left.NOTHING
        except FileNotFoundError:
            return Left.NOTHING

    def read(self, name: str) -> Iterator[bytes]:
        try:
            with open(self.cache / name, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except FileNotFoundError as error:
            raise VolumeNotFound(self.pool.name, name) from error

    def remove(self, name: str) -> None:
        files.remove(self.cache / name)

    def _recorded(self) -> list[str]:
        found = (self.sidecar / "records").glob(f"[!.]*{RECORD}")
        return sorted(path.name.removesuffix(RECORD) for path in found)

    def _read_record(self, name: str) -> bytes | None:
        path = self._record_path(name)
        try:
            return unseal(path.read_bytes(), path)
        except FileNotFoundError:
            return None

    def _write_record(self, name: str, sealed: bytes) -> None:
        write_file(self._record_path(name), sealed)

    def _record_path(self, name: str) -> Path:
        return self.sidecar / "records" / f"{name}{RECORD}"

    def _names(self) -> list[str]:
        return [each.name for each in self.cache.glob("*") if not is_marker(each.name)]

    def _length(self, name: str) -> int | None:
        try:
            return (self.cache / name).stat().st_size
        except FileNotFoundError:
            return None

    def _space(self, name: str) -> int:
        return files.own_space(self.cache / name)

    def _copy(self, name: str, target: Path) -> None:
        files.link_or_copy(self.cache / name, target)


def _identity(path: Path) -> str:
    found = path.lstat()
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"
