"""What is known of the templates in the base pool: one record each, beside the pool.

``<cache>.millpond`` is a sibling of the cache directory on the same file system, so that the
pool holds templates and nothing else, and a template enters it by rename. Of a host whose files
are not here, the records lie in the same place, reached as a pool; all else that is beside the
pool lies in the state directory.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from millpond.errors import DamagedRecord, UnreadableRecord
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.model.template import SCHEMA, Template
from millpond.records import codec
from millpond.system.locks import Locks
from millpond.templates.ledger import (
    FileLedger,
    Ledger,
    VolumeLedger,
    make_directory,
    write_beside,
)
from millpond.templates.shelf import FileShelf, Shelf, VolumeShelf

LOG = logging.getLogger(__name__)


class TemplateStore:
    def __init__(self, pool: Pool, shelf: Shelf, ledger: Ledger, beside: Path) -> None:
        """``beside``: a directory here, for what is neither a template nor its record."""
        self.pool = pool
        self.shelf = shelf
        self.beside = beside
        self._ledger = ledger
        self._incoming = beside / "incoming"
        self._quarantine = beside / "quarantine"
        self._locks = Locks(beside / "locks")
        self._left_out: set[str] = set()

    @property
    def cache(self) -> Path:
        """Where the templates are, on the host."""
        return Path(self.pool.path)

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
        link the record is all there is. One that is not raw, as earlier versions made, is none:
        what it leads to could name files of the host by now."""
        try:
            content = self._ledger.read(name)
            if content is None:
                return None
            template = codec.decode(content, Template, self._ledger.place(name), SCHEMA)
        except DamagedRecord:
            return None
        if template.link:
            return template if template.format is DiskFormat.RAW else None
        return template if self.shelf.length(name) == template.size else None

    def all(self) -> Iterator[Template]:
        """Those whose records can be read. Of one that a newer version wrote, and that find()
        refuses, nothing is decided: it stays."""
        for name in self._ledger.names():
            try:
                if template := self.find(name):
                    yield template
            except UnreadableRecord as error:
                if name not in self._left_out:
                    LOG.warning("template %s is left out: %s", name, error)
                    self._left_out.add(name)

    def put(self, template: Template) -> None:
        """Written last: from here on the template exists."""
        self._ledger.write(template.volume, codec.encode(template))

    def write(self, path: Path, content: bytes) -> None:
        """A file beside the cache."""
        write_beside(path, content)

    def forget(self, name: str) -> None:
        """Before the file goes, so that nothing names a template that is half gone."""
        self._ledger.remove(name)

    def keep_aside(self, name: str) -> Path:
        """What a template is now, for people to look at when it has gone or was replaced."""
        make_directory(self._quarantine)
        kept = self._quarantine / f"{name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self.shelf.keep(name, kept)
        return kept

    def workspace(self, name: str) -> Path:
        """Where a template is made before it enters the pool."""
        path = self.incoming(name)
        make_directory(path)
        return path

    def incoming(self, name: str) -> Path:
        """Its workspace, be it there or not."""
        return self._incoming / name

    def discard_workspace(self, name: str) -> None:
        shutil.rmtree(self.incoming(name), ignore_errors=True)

    def has_record(self, name: str) -> bool:
        """However damaged: disks may have been made from it."""
        return self._ledger.has(name)

    def is_unfinished(self, name: str) -> bool:
        return self.incoming(name).exists()

    def unfinished(self) -> list[str]:
        """Names of templates whose preparation was begun and has not ended."""
        return sorted(path.name for path in self._incoming.glob("[!.]*"))

    def space(self) -> int:
        """What the templates take on disk, one that has no record yet included."""
        names = {*self._ledger.names(), *self.unfinished()}
        return sum(self.shelf.space(name) for name in names)

    def unknown(self) -> list[str]:
        """Files in the pool that are no template and no preparation of ours: never touched."""
        known = {template.volume for template in self.all()} | set(self.unfinished())
        return sorted(set(self.shelf.names()) - known - self._left_out)


def file_store(pool: Pool) -> TemplateStore:
    """Of a host whose files are here."""
    cache = Path(pool.path)
    beside = cache.with_name(f"{cache.name}.millpond")
    ledger = FileLedger(beside / "records")
    return TemplateStore(pool, FileShelf(pool), ledger, beside)


def volume_store(pool: Pool, records: Pool, beside: Path) -> TemplateStore:
    """Of any other host. That there is such a store is known here by its directory."""
    make_directory(beside)
    return TemplateStore(pool, VolumeShelf(pool), VolumeLedger(records), beside)
