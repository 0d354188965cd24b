"""Templates that only libvirt reaches: volumes of a remote host, and so are their records."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from millpond.errors import (
    CacheOwnedByAnother,
    DamagedRecord,
    NeedsHostFiles,
    VolumeExists,
    VolumeNotFound,
)
from millpond.libvirt.locality import is_locality_probe
from millpond.libvirt.pool import Pool, bytes_of, download, send_file
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.volume import Volume, VolumeSpec
from millpond.records import codec
from millpond.system import streams
from millpond.templates.sidecar import make_directory
from millpond.templates.store import RECORD, Leftover, Note, TemplateStore

_NEXT = f"{RECORD}.next"
_EMPTY, _FILLING = "empty", "filling"


class RemoteTemplates(TemplateStore):
    local = False

    def __init__(self, pool: Pool, records: Pool, sidecar: Path) -> None:
        """That there is such a store is known here by its directory."""
        make_directory(sidecar)
        super().__init__(pool, sidecar)
        self._records = records

    def has_record(self, name: str) -> bool:
        """The second is begun only when the first is whole: without it, one that is damaged was
        never finished."""
        if self._records.find(f"{name}{RECORD}"):
            return True
        with suppress(DamagedRecord):
            return self._read_whole(f"{name}{_NEXT}") is not None
        return False

    def forget(self, name: str) -> None:
        """An older one must not come to light when the other is gone."""
        self._delete_record(f"{name}{_NEXT}")
        self._delete_record(f"{name}{RECORD}")

    def refuse(self, format: DiskFormat) -> None:
        """libvirt takes a ploop file for a directory, and neither reads nor removes it."""
        if not format.libvirt_makes:
            reason = "libvirt cannot make one"
            raise NeedsHostFiles(f"a {format} template", reason, self.pool.path)

    def has(self, name: str) -> bool:
        return self.pool.find(name) is not None

    def enter(
        self, part: Path, name: str, over: Leftover, note: Note, progress: Progress = noop
    ) -> None:
        """Until it has its record, nobody takes what is there for a template."""
        if over is Leftover.WHOLE:
            reason = "disks may be backed by it, and libvirt puts no volume into another's place"
            path = self.pool.get(name).path
            raise NeedsHostFiles(f"replacing template {name}", reason, path)
        size = part.stat().st_size
        if over is Leftover.NOTHING:
            self._create(name, size, note)
        elif (self._length(name) or 0) > size:
            raise VolumeExists(self.pool.name, name)
        note(f"{_FILLING} {size}")
        send_file(self.pool, name, part, progress)
        note(self.proof(name))

    def proof(self, name: str) -> str:
        return _identity(self.pool.get(name))

    def find_leftover(self, name: str, proof: str) -> Leftover:
        """libvirt reports no inode. It makes no volume over a file that is there, so what was
        noted as being filled was made by us, and is known by its mode and length (at a hole
        libvirt cuts it off for a while); one that was never written to holds nothing; a whole one
        bears the time at which we ended."""
        found = self.pool.find(name)
        if found is None or not found.read_only:
            return Leftover.NOTHING
        if proof == _identity(found):
            return Leftover.WHOLE
        stage, _, size = proof.partition(" ")
        is_empty = stage == _EMPTY and not found.allocation and found.length == int(size)
        is_part = stage == _FILLING and found.length <= int(size)
        return Leftover.PARTIAL if is_empty or is_part else Leftover.NOTHING

    def read(self, name: str) -> Iterator[bytes]:
        return bytes_of(self.pool, name)

    def remove(self, name: str) -> None:
        with suppress(VolumeNotFound):
            self.pool.delete(name)

    def _record_names(self) -> list[str]:
        found = {_record_of(volume) for volume in self._records.names()}
        return sorted(name for name in found if name and self.has_record(name))

    def _read_record(self, name: str) -> bytes | None:
        try:
            if found := self._read_whole(f"{name}{RECORD}"):
                return found
        except DamagedRecord:
            if found := self._read_whole(f"{name}{_NEXT}"):
                return found
            raise
        with suppress(DamagedRecord):
            return self._read_whole(f"{name}{_NEXT}")
        return None

    def _write_record(self, name: str, sealed: bytes) -> None:
        """libvirt renames nothing, and fills a volume bit by bit: so a record is written twice,
        and while the one is not whole, the other one is."""
        for volume in (f"{name}{_NEXT}", f"{name}{RECORD}"):
            self._delete_record(volume)
            spec = VolumeSpec(name=volume, format=DiskFormat.RAW, capacity=len(sealed))
            self._records.create(spec)
            self._records.upload(volume, sealed)
        self._delete_record(f"{name}{_NEXT}")

    def _record_path(self, name: str) -> Path:
        return Path(self._records.path) / f"{name}{RECORD}"

    def _names(self) -> list[str]:
        return [name for name in self.pool.names() if not is_locality_probe(name)]

    def _length(self, name: str) -> int | None:
        found = self.pool.find(name)
        return found.length if found else None

    def _space(self, name: str) -> int:
        found = self.pool.find(name)
        return found.allocation if found else 0

    def _copy(self, name: str, target: Path) -> None:
        download(self.pool, name, target)

    def _create(self, name: str, size: int, note: Note) -> None:
        spec = VolumeSpec(name=name, format=DiskFormat.RAW, capacity=size, read_only=True)
        note(f"{_EMPTY} {size}")
        try:
            self.pool.create(spec)
        except VolumeExists:
            note("")
            raise

    def _read_whole(self, volume: str) -> bytes | None:
        """Of a record. None if there is none; raises DamagedRecord."""
        try:
            content = b"".join(streams.plain(self._records.pieces(volume)))
        except VolumeNotFound:
            return None
        return codec.unseal(content, Path(self._records.path) / volume)

    def _delete_record(self, volume: str) -> None:
        with suppress(VolumeNotFound):
            self._records.delete(volume)


def _record_of(volume: str) -> str:
    """The name of the template whose record a volume holds; empty if it holds none."""
    for ending in (_NEXT, RECORD):
        if volume.endswith(ending):
            return volume.removesuffix(ending)
    return ""


def _identity(volume: Volume) -> str:
    return f"whole {volume.length} {volume.changed}"


_ENDING = ".mark"
_PATIENCE = 5.0
"""Seconds that somebody who came at the same moment has to take their mark away."""


def claim(records: Pool, owner: str, host: str, patience: float = _PATIENCE) -> None:
    """Raises CacheOwnedByAnother."""
    ours = f"{owner}.{host}{_ENDING}"
    marks = _owner_files(records) or _claim_first(records, ours, patience)
    if others := [each for each in marks if each != ours]:
        raise CacheOwnedByAnother(records.name, others[0], others[0].removesuffix(_ENDING))


def _claim_first(records: Pool, ours: str, patience: float) -> list[str]:
    """The marks that there are when ours was made. Of two that were made at once, the first by
    name stays and the other is removed by its owner; one that stays was there before."""
    with suppress(VolumeExists):
        records.create(VolumeSpec(name=ours, format=DiskFormat.RAW, capacity=0))
    end = time.monotonic() + patience
    while (marks := _owner_files(records)) != [ours]:
        if marks[0] != ours or time.monotonic() > end:
            with suppress(VolumeNotFound):
                records.delete(ours)
            break
        time.sleep(0.05)
    return marks


def _owner_files(records: Pool) -> list[str]:
    """What another host put there is seen after a refresh."""
    records.refresh()
    return sorted(name for name in records.names() if name.endswith(_ENDING))
