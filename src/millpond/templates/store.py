"""The templates of a cache: their bytes in the base pool, and a record of each next to it.

``<cache>.millpond`` is a sibling of the cache directory on the same file system, so that the
pool holds templates and nothing else, and a template enters it by rename. Of a remote host the
records lie in the same place, reached as a pool; the rest of the sidecar lies in the state
directory.
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from millpond.errors import (
    DamagedRecord,
    PoolUnusable,
    UnreadableRecord,
    VolumeExists,
    VolumeNotFound,
)
from millpond.libvirt.locality import is_locality_probe
from millpond.libvirt.pool import Pool
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.template import SCHEMA, Link, Prepared, Template
from millpond.records import codec
from millpond.system import files
from millpond.system.files import CHUNK
from millpond.templates.sidecar import Sidecar, make_directory, write_file

LOG = logging.getLogger(__name__)

RECORD = ".json"

Note = Callable[[str], None]
"""Given the proof by which a template is known to be the one that we put there. The proof is
durable when it returns."""


class Leftover(StrEnum):
    """What an attempt of ours has left under a template's name."""

    NOTHING = "nothing"
    """Whatever is there was put there by somebody else, or cannot be proven to be ours."""
    PARTIAL = "partial"
    WHOLE = "whole"


class TemplateStore(Sidecar, ABC):
    """LocalTemplates or RemoteTemplates; both pass tests/contract/template_store.py."""

    local: bool
    """Whether the templates are files of this machine. Else their bytes are uploaded."""

    def __init__(self, pool: Pool, sidecar: Path) -> None:
        super().__init__(sidecar)
        self.pool = pool
        self.cache = Path(pool.path)
        self._left_out: set[str] = set()

    # Records

    def find(self, name: str) -> Template | None:
        """The template, if its record is valid and its file is as long as the record says; of a
        link the record is all there is. A link that is not raw, as earlier versions made, is none:
        what it leads to could name files of the host by now. What streams has an index, and is
        what was inspected."""
        try:
            content = self._read_record(name)
            if content is None:
                return None
            template = codec.decode(content, Template, self._record_path(name), SCHEMA)
        except DamagedRecord:
            return None
        if template.link:
            is_safe = template.streams or template.format is DiskFormat.RAW
            return template if is_safe else None
        return template if self._length(name) == template.size else None

    def all(self) -> Iterator[Template]:
        """Those whose records can be read. Of one that a newer version wrote, and that find()
        refuses, nothing is decided: it stays."""
        for name in self._record_names():
            try:
                if template := self.find(name):
                    yield template
            except UnreadableRecord as error:
                if name not in self._left_out:
                    LOG.warning("template %s is left out: %s", name, error)
                    self._left_out.add(name)

    def put(self, template: Template) -> None:
        """Written last: from here on the template exists."""
        self._write_record(template.volume, codec.seal(codec.encode(template)))

    @abstractmethod
    def has_record(self, name: str) -> bool:
        """However damaged: disks may have been made from it."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Remove the record, before the bytes, so that nothing names a template that is half
        gone. One that is gone already is no error."""

    # Bytes

    @abstractmethod
    def refuse(self, format: DiskFormat) -> None:
        """Raises NeedsHostFiles for what could not be served from here, or never be removed."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is anything of this name in the pool."""

    @abstractmethod
    def enter(
        self, part: Path, name: str, over: Leftover, note: Note, progress: Progress = noop
    ) -> None:
        """A complete file of this machine becomes a template: root's, read-only, and durable as
        far as we can see to that. ``over``: what of ours is there; disks may be backed by a
        whole one. Raises VolumeExists for what is not ours, which stays as it is."""

    @abstractmethod
    def proof(self, name: str) -> str:
        """By what a template that is there is known again."""

    @abstractmethod
    def find_leftover(self, name: str, proof: str) -> Leftover:
        """What is there now, by the proof that was last noted."""

    @abstractmethod
    def read(self, name: str) -> Iterator[bytes]:
        """Raises VolumeNotFound."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove the bytes. What is gone already is no error."""

    def quarantine(self, name: str) -> Path:
        """What a template is now, for people to look at when it was removed or replaced."""
        quarantine = self.sidecar / "quarantine"
        make_directory(quarantine)
        kept = quarantine / f"{name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self._copy(name, kept)
        return kept

    def space(self, name: str | None = None) -> int:
        """What the removal of a template would free; without a name, that of all of them, those
        without a record yet included."""
        names = {name} if name else {*self._record_names(), *self.unfinished()}
        return sum(map(self._space, names))

    def unknown(self) -> list[str]:
        """Names in the pool that are no template and no preparation of ours: never touched."""
        return sorted(set(self._names()) - set(self._record_names()) - set(self.unfinished()))

    @abstractmethod
    def _record_names(self) -> list[str]:
        """Names of all records, however damaged."""

    @abstractmethod
    def _read_record(self, name: str) -> bytes | None:
        """Unsealed; None if there is none. Raises DamagedRecord."""

    @abstractmethod
    def _write_record(self, name: str, sealed: bytes) -> None:
        """In place of what there was: there as a whole or not at all, whenever we are killed."""

    @abstractmethod
    def _record_path(self, name: str) -> Path:
        """For people."""

    @abstractmethod
    def _names(self) -> list[str]:
        """Of whatever is in the pool."""

    @abstractmethod
    def _length(self, name: str) -> int | None:
        """In bytes; None if there is none."""

    @abstractmethod
    def _space(self, name: str) -> int:
        """Of what is not there, nothing."""

    @abstractmethod
    def _copy(self, name: str, target: Path) -> None:
        """To a new file of this machine."""


def new_record(
    name: str,
    image: Image | None,
    *,
    pool: str,
    prepared: Prepared,
    size: int,
    virtual_size: int,
    format: DiskFormat = DiskFormat.RAW,
    digest: str | None = None,
    link: Link | None = None,
    signature: str = "",
) -> Template:
    """Of a template that is made now; that of a blank disk has no image."""
    return Template(
        image=image.id if image else ImageId(""),
        image_digest=image.digest if image else "",
        pool=pool,
        volume=name,
        format=format,
        virtual_size=virtual_size,
        size=size,
        prepared=prepared,
        digest=digest,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        link=link,
        signature=signature,
    )


class LocalTemplates(TemplateStore):
    """Files in the base pool's directory, which can be opened here."""

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
        self, part: Path, name: str, over: Leftover, note: Note, progress: Progress = noop
    ) -> None:
        """In one step, after which nothing is left to be done."""
        with open(part, "rb") as file:
            os.fchmod(file.fileno(), 0o444)
            os.fchown(file.fileno(), os.geteuid(), os.getegid())
            files.sync(file.fileno())
        note(_identity(part))
        put = files.move_to_new if over is Leftover.NOTHING else os.rename
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

    def find_leftover(self, name: str, proof: str) -> Leftover:
        """The file that we moved there is the same inode, and nobody has written to it since."""
        try:
            return Leftover.WHOLE if proof == self.proof(name) else Leftover.NOTHING
        except FileNotFoundError:
            return Leftover.NOTHING

    def read(self, name: str) -> Iterator[bytes]:
        try:
            with open(self.cache / name, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except FileNotFoundError as error:
            raise VolumeNotFound(self.pool.name, name) from error

    def remove(self, name: str) -> None:
        files.remove(self.cache / name)

    def _record_names(self) -> list[str]:
        found = (self.sidecar / "records").glob(f"[!.]*{RECORD}")
        return sorted(path.name.removesuffix(RECORD) for path in found)

    def _read_record(self, name: str) -> bytes | None:
        path = self._record_path(name)
        try:
            return codec.unseal(path.read_bytes(), path)
        except FileNotFoundError:
            return None

    def _write_record(self, name: str, sealed: bytes) -> None:
        write_file(self._record_path(name), sealed)

    def _record_path(self, name: str) -> Path:
        return self.sidecar / "records" / f"{name}{RECORD}"

    def _names(self) -> list[str]:
        return [each.name for each in self.cache.glob("*") if not is_locality_probe(each.name)]

    def _length(self, name: str) -> int | None:
        try:
            return (self.cache / name).stat().st_size
        except FileNotFoundError:
            return None

    def _space(self, name: str) -> int:
        """What is still arriving has reserved all that it will take."""
        own, arriving = files.own_space(self.cache / name), self.stream(name) / "part"
        return own or (files.taken_space(arriving) if arriving.exists() else 0)

    def _copy(self, name: str, target: Path) -> None:
        files.link_or_copy(self.cache / name, target)


def _identity(path: Path) -> str:
    found = path.lstat()
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"
