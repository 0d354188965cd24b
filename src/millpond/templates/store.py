"""What is known of the templates in the base pool: one record each, beside the pool.

``<cache>.millpond`` is a sibling of the cache directory on the same file system, so that the
pool holds templates and nothing else, and a template enters it by rename.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import DamagedRecord, StateNotWritable
from millpond.model.template import SCHEMA, Template
from millpond.records import codec
from millpond.storage.pool import Pool
from millpond.system import files
from millpond.system.locks import Locks


class TemplateStore:
    def __init__(self, pool: Pool, *, adopts: bool = True) -> None:
        """``adopts`` is off where the operator says that nothing of Nova's is left: then nobody
        would look for disks that stand on it."""
        self.pool = pool
        self.adopts = adopts
        self.cache = Path(pool.path)
        self.beside = self.cache.with_name(f"{self.cache.name}.millpond")
        self._records = self.beside / "records"
        self._incoming = self.beside / "incoming"
        self._quarantine = self.beside / "quarantine"
        self._locks = Locks(self.beside / "locks")

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Held while a template is prepared, looked up for use, or removed."""
        return self._locks.hold(f"template:{name}")

    def lock_now(self, name: str) -> AbstractContextManager[None]:
        """The same, or Busy at once."""
        return self._locks.hold_now(f"template:{name}", f"template {name}")

    def lock_room(self) -> AbstractContextManager[None]:
        """Held from when a template is found to fit into the cache until it is there."""
        return self._locks.hold("room")

    def lock_marks(self, owner: str) -> AbstractContextManager[None]:
        """Held while a host's mark is read and written; taken after a template's lock."""
        return self._locks.hold(f"uses:{owner}")

    def is_worked_on(self, name: str) -> bool:
        return self._locks.is_held(f"template:{name}")

    def find(self, name: str) -> Template | None:
        """The template, if its record is valid and its file is as long as the record says; of a
        link the record is all there is."""
        try:
            template = self._read(self._record(name))
            if template.link:
                return template
            size = (self.cache / name).stat().st_size
        except (FileNotFoundError, DamagedRecord):
            return None
        return template if size == template.size else None

    def all(self) -> Iterator[Template]:
        for path in sorted(self._records.glob("[!.]*.json")):
            if template := self.find(path.name.removesuffix(".json")):
                yield template

    def put(self, template: Template) -> None:
        """Written last: from here on the template exists."""
        payload = codec.encode(template)
        head = {"length": len(payload), "sha256": _digest(payload)}
        self.write(self._record(template.volume), json.dumps(head).encode() + b"\n" + payload)

    def write(self, path: Path, content: bytes) -> None:
        """A file beside the cache."""
        self._make(path.parent)
        files.write_atomically(path, content)

    def forget(self, name: str) -> None:
        """Before the file goes, so that nothing names a template that is half gone."""
        files.remove(self._record(name))

    def remove_file(self, name: str) -> None:
        files.remove(self.cache / name)

    def keep_aside(self, name: str) -> Path:
        """What a template is now, for people to look at when it has gone or was replaced."""
        self._make(self._quarantine)
        kept = self._quarantine / f"{name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        files.link_or_copy(self.cache / name, kept)
        return kept

    def workspace(self, name: str) -> Path:
        """Where a template is made before it enters the pool."""
        path = self._incoming / name
        self._make(path)
        return path

    def discard_workspace(self, name: str) -> None:
        shutil.rmtree(self._incoming / name, ignore_errors=True)

    def is_ours(self, name: str) -> bool:
        """Whether a record, however damaged, or a preparation under way names this template."""
        return self.has_record(name) or (self._incoming / name).exists()

    def has_record(self, name: str) -> bool:
        """However damaged: disks may have been made from it."""
        return self._record(name).exists()

    def unfinished(self) -> list[str]:
        """Names of templates whose preparation was begun and has not ended."""
        return sorted(path.name for path in self._incoming.glob("[!.]*"))

    def space(self) -> int:
        """What the templates take on disk, one that has no record yet included."""
        names = {each.volume for each in self.all()} | set(self.unfinished())
        return sum(files.own_space(self.cache / name) for name in names)

    def unknown(self) -> list[str]:
        """Files in the pool that are no template and no preparation of ours: never touched."""
        known = {template.volume for template in self.all()} | set(self.unfinished())
        return sorted(path.name for path in self.cache.glob("*") if path.name not in known)

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _read(self, path: Path) -> Template:
        head, _, payload = path.read_bytes().partition(b"\n")
        try:
            stated = json.loads(head)
            intact = (stated["length"], stated["sha256"]) == (len(payload), _digest(payload))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedRecord(path, "its first line is damaged") from error
        if not intact:
            raise DamagedRecord(path, "its content is not what it was when it was written")
        return codec.decode(payload, Template, path, SCHEMA)

    def _make(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
