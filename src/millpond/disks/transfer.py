"""A volume's bytes from one host to another through this machine, and proof that they arrived."""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import HostProblem
from millpond.libvirt import locality
from millpond.libvirt.pool import Pool
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.server import Disk
from millpond.model.volume import VolumeSpec
from millpond.system import files, qcow2, streams
from millpond.system.streams import Piece

LOG = logging.getLogger(__name__)

_BLOCK = 64 * 1024


class ContentDigest:
    """Of content, in whatever pieces it comes. Zeros do not count: either pool may keep them as
    holes, and have more of them at the end."""

    def __init__(self) -> None:
        self.length = 0
        self._hash = hashlib.sha256()
        self._part = bytearray()

    def add(self, piece: Piece) -> None:
        if isinstance(piece, bytes):
            self._append(piece)
            return
        rest = piece - min(piece, -len(self._part) % _BLOCK)
        self._append(bytes(piece - rest))
        self.length += rest // _BLOCK * _BLOCK
        self._append(bytes(rest % _BLOCK))

    def hexdigest(self) -> str:
        self._count(self.length - len(self._part), bytes(self._part))
        self._part.clear()
        return self._hash.hexdigest()

    def _append(self, content: bytes) -> None:
        first = self.length - len(self._part)
        self._part += content
        self.length += len(content)
        whole = len(self._part) // _BLOCK * _BLOCK
        for at in range(0, whole, _BLOCK):
            self._count(first + at, bytes(self._part[at : at + _BLOCK]))
        del self._part[:whole]

    def _count(self, start: int, block: bytes) -> None:
        if content := block.rstrip(b"\0"):
            self._hash.update(f"{start} {len(content)} ".encode() + content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    length: int
    digest: str
    moved: int
    """Bytes that were carried; holes are not."""
    changed: str | None = None
    """When that which was read had last been changed, before it was read."""


def send(
    pieces: Iterable[Piece], length: int, pool: Pool, name: str, progress: Progress = noop
) -> Sent:
    """Into a new volume, byte by byte, whatever libvirt takes them for afterwards. Broken off, the
    volume stays, half filled."""
    digest, moved = ContentDigest(), 0

    def passing() -> Iterator[Piece]:
        nonlocal moved
        for piece in pieces:
            digest.add(piece)
            yield piece
            if isinstance(piece, bytes):
                moved += len(piece)
                progress(len(piece))
        if digest.length != length:  # libvirt has been seen to end a download early (trap 21)
            raise HostProblem(
                f"only {digest.length} of {length} bytes came for volume {name}",
                "try again; if it stays so, look into libvirtd's log on the host",
            )

    pool.create(VolumeSpec(name=name, format=DiskFormat.RAW, capacity=length))
    pool.send(name, passing(), length)
    pool.refresh()
    LOG.info("sent %s of %s bytes to %s/%s", moved, length, pool.name, name)
    return Sent(length=length, digest=digest.hexdigest(), moved=moved)


def read(pool: Pool, disk: Disk) -> Iterator[Piece]:
    """What its volume holds. libvirt reads a ploop image only with ploop's own tools: it is opened
    as a file, which must be local."""
    if disk.format.libvirt_makes:
        return pool.pieces(disk.volume)
    return streams.read(Path(pool.get(disk.volume).path))


def verify(pool: Pool, disk: Disk, sent: Sent) -> None:
    """Read it back. Where its file or device is local, it then survives a power failure."""
    found = ContentDigest()
    for piece in read(pool, disk):
        found.add(piece)
    if found.length < sent.length or found.hexdigest() != sent.digest:
        raise HostProblem(
            f"volume {pool.name}/{disk.volume} does not hold what was sent to it",
            "try again; if it stays so, see whether the pool's file system has errors",
        )
    if locality.can_open(pool, volume := pool.get(disk.volume), os.R_OK):
        files.sync_path(Path(volume.path))  # what it was read from is removed soon


def rename_backing(pieces: Iterable[Piece], backing: str) -> Iterator[Piece]:
    """Those of an overlay, with the name that its backing file has at the destination."""
    head, rest, left = b"", 0, iter(pieces)
    for piece in left:
        if isinstance(piece, bytes):
            head += piece
        else:
            rest = piece - min(piece, max(qcow2.ENOUGH - len(head), 0))
            head += bytes(piece - rest)
        if len(head) >= qcow2.ENOUGH:
            break
    yield qcow2.rename_backing(head, backing)
    if rest:
        yield rest
    yield from left
