"""A server in one file: a tar of a manifest and of one image per disk, written and read in one
pass. Whoever wrote it is not trusted: every byte is compared with the manifest, and every image is
inspected."""

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from millpond.errors import ArchiveRefused, DamagedRecord, NewerRecord
from millpond.model.callbacks import Progress
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.records import codec
from millpond.system.files import CHUNK

SCHEMA = 1
_MANIFEST = "millpond-server.json"
_LARGEST_MANIFEST = 4 * 1024 * 1024
_MODE = 0o600
_FORMATS = {DiskFormat.QCOW2: ImageFormat.QCOW2, DiskFormat.RAW: ImageFormat.RAW}

_AGAIN = "export it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedDisk:
    role: str
    format: DiskFormat
    size: int
    """Of the image, as all bytes here."""
    virtual_size: int
    sha512: str

    @property
    def member(self) -> str:
        return f"{self.role}.{self.format}"

    @property
    def image_format(self) -> ImageFormat:
        return _FORMATS[self.format]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedGuest:
    hostname: str
    keys: tuple[str, ...]
    user_data: bytes
    """In JSON as base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    server: Mapping[str, Any]
    """Its record."""
    disks: tuple[ArchivedDisk, ...]
    """In the order in which they follow."""
    guest: ArchivedGuest | None = None
    created: str = ""
    schema: int = field(default=SCHEMA)


class ArchiveWriter:
    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def put_manifest(self, manifest: Manifest) -> None:
        content = codec.seal(codec.encode(manifest))
        self._put(_MANIFEST, len(content), [content])

    def put_disk(self, disk: ArchivedDisk, path: Path, progress: Progress) -> None:
        with path.open("rb") as file:
            self._put(disk.member, disk.size, _chunks(file, progress))

    def finish(self) -> None:
        self._target.write(bytes(tarfile.RECORDSIZE))  # two blocks of zeros, and to spare

    def _put(self, name: str, size: int, content: Iterable[bytes]) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, _MODE
        self._target.write(member.tobuf(tarfile.GNU_FORMAT))
        for chunk in content:
            self._target.write(chunk)
        self._target.write(bytes(-size % tarfile.BLOCKSIZE))


class Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Up to so many; none at the end."""


class ArchiveReader:
    """Takes the members that it expects, in their order, and no others: headers of other kinds,
    which a tar may have, are never looked into."""

    def __init__(self, source: Readable, name: str) -> None:
        self._source = source
        self._name = name

    def read_manifest(self) -> Manifest:
        size = self._header(_MANIFEST)
        if size > _LARGEST_MANIFEST:
            raise self.refuse("its manifest is too large")
        sealed = b"".join(self._data(size))
        where = Path(_MANIFEST)
        try:
            manifest = codec.decode(codec.unseal(sealed, where), Manifest, where, SCHEMA)
        except NewerRecord as error:
            reason = f"a newer Millpond wrote it (schema {error.schema}, known {error.known})"
            raise self.refuse(reason, "import it with that version") from error
        except DamagedRecord as error:
            raise self.refuse(f"its manifest is damaged: {error.reason}") from error
        for each in manifest.disks:
            if each.format not in _FORMATS or each.size < 0 or not _is_digest(each.sha512):
                raise self.refuse(f"its manifest says nonsense of disk {each.role!r}")
        return manifest

    def read_disk(self, disk: ArchivedDisk) -> Iterator[bytes]:
        size = self._header(disk.member)
        if size != disk.size:
            raise self.refuse(f"{disk.member} is not as long as its manifest says")
        yield from self._data(size)

    def refuse(self, reason: str, advised: str = _AGAIN) -> ArchiveRefused:
        return ArchiveRefused(self._name, reason, advised)

    def _header(self, expected: str) -> int:
        """The size of the member that comes next."""
        block = self._read(tarfile.BLOCKSIZE)
        if not block.strip(b"\0"):
            raise self.refuse(f"it ends before {expected}")
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        except tarfile.HeaderError as error:
            what = f"no archive of a server: {error}" if expected == _MANIFEST else "damaged"
            advised = "'server export' makes one" if expected == _MANIFEST else _AGAIN
            raise self.refuse(f"it is {what}", advised) from error
        if found.name != expected or not found.isreg() or found.size < 0:
            what = "no archive of a server" if expected == _MANIFEST else "damaged"
            raise self.refuse(f"it is {what}: {expected} was expected, and not {found.name!r}")
        return found.size

    def _data(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._read(min(left, CHUNK))
            left -= len(piece)
            yield piece
        self._read(-size % tarfile.BLOCKSIZE)

    def _read(self, size: int) -> bytes:
        pieces = []
        while size:
            try:
                piece = self._source.read(size)
            except OSError as error:
                raise self.refuse(f"it cannot be read: {error.strerror}") from error
            if not piece:
                raise self.refuse("it is cut off", "fetch it again, or export it again")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _chunks(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk
        progress(len(chunk))


def _is_digest(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{128}", text) is not None
