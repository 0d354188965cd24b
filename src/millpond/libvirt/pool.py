"""A pool of volumes: what every implementation promises (tests/contract/pool.py)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from millpond.errors import HostProblem
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.layer import CephAccess, Source
from millpond.model.volume import PoolCapabilities, PoolUsage, Volume, VolumeSpec
from millpond.system import streams
from millpond.system.streams import Piece


class PoolType(StrEnum):
    """libvirt's names for the types of pools that we make."""

    DIR = "dir"
    LOGICAL = "logical"
    RBD = "rbd"


class Pool(Protocol):
    """Nothing here trusts a format that libvirt reports: callers state it (trap 2)."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def ceph(self) -> CephAccess | None:
        """Of a pool in a Ceph cluster."""
        ...

    @property
    def capabilities(self) -> PoolCapabilities: ...

    @property
    def local(self) -> bool:
        """Whether its files can be opened on this machine; of a pool whose volumes are no files,
        whether its host is this machine. Probed once per process, when it is first asked."""
        ...

    def find(self, name: str) -> Volume | None: ...

    def get(self, name: str) -> Volume:
        """Raises VolumeNotFound."""
        ...

    def volumes(self) -> Sequence[Volume]: ...

    def names(self) -> Sequence[str]:
        """Of its volumes: one question, however many there are."""
        ...

    def source(self, name: str) -> Source:
        """How a domain names a volume of this pool."""
        ...

    def create(self, spec: VolumeSpec) -> Volume:
        """An empty volume that reads as zeros, or an overlay of its backing. It may be larger
        than asked for. Raises VolumeExists; and Unsupported, as everything here does, for what the
        capabilities deny."""
        ...

    def create_from(self, spec: VolumeSpec, source: Volume) -> Volume:
        """A full copy, at least as large as its source. Raises VolumeExists; a copy that fails
        leaves no volume."""
        ...

    def resize(self, name: str, capacity: int) -> None:
        """Larger only: a smaller capacity raises Unsupported. It may become larger than asked."""
        ...

    def upload(self, name: str, content: bytes) -> None:
        """Write a small volume's content. Not for bytes that were not inspected: libvirt looks
        at what it has received (trap 2)."""
        ...

    def send(self, name: str, pieces: Iterable[Piece], length: int) -> None:
        """So many bytes into a volume that was made as long, in one pass; holes stay holes. The
        same holds as of an upload. Broken off, the volume is left half filled."""
        ...

    def pieces(self, name: str) -> Iterator[Piece]:
        """A volume's own bytes from its beginning, whatever libvirt takes them for. Raises
        VolumeNotFound."""
        ...

    def delete(self, name: str) -> None:
        """Raises VolumeNotFound."""
        ...

    def refresh(self) -> None:
        """Find what was put into the pool behind libvirt's back. Waits while volumes are being
        built; a pool that falls inactive is started again, now or as soon as it can be."""
        ...

    def usage(self) -> PoolUsage: ...


CAPABILITIES: Mapping[PoolType, PoolCapabilities] = {
    PoolType.DIR: PoolCapabilities(
        formats=frozenset({DiskFormat.RAW, DiskFormat.QCOW2, DiskFormat.PLOOP}),
        overlays=True,
        copies_across_pools=True,
        grows=True,
        sparse=True,
        uploads=True,
        volume_disks=True,
    ),
    PoolType.LOGICAL: PoolCapabilities(
        formats=frozenset({DiskFormat.RAW}),
        copies_across_pools=True,
        uploads=True,
        volume_disks=True,
    ),
    PoolType.RBD: PoolCapabilities(
        formats=frozenset({DiskFormat.RAW}), grows=True, sparse=True, remote=True
    ),
}


def send_file(pool: Pool, name: str, source: Path, progress: Progress = noop) -> None:
    """A file of this machine into a volume that was made as long as it is."""
    pool.send(name, streams.read(source, progress), source.stat().st_size)


def download(pool: Pool, name: str, target: Path, progress: Progress = noop) -> None:
    """Into a new file, with the holes that it has there."""
    expected = pool.get(name)
    _refuse_unless_whole(expected, streams.write(pool.pieces(name), target, progress))


def bytes_of(pool: Pool, name: str) -> Iterator[bytes]:
    expected, length = pool.get(name), 0
    for content in streams.plain(pool.pieces(name)):
        length += len(content)
        yield content
    _refuse_unless_whole(expected, length)


def _refuse_unless_whole(expected: Volume, length: int) -> None:
    """libvirt has been seen to end a download early, without an error (trap 21)."""
    if length != expected.length:
        volume = f"{expected.pool}/{expected.name}"
        raise HostProblem(
            f"only {length} of {expected.length} bytes came of volume {volume}",
            "try again; if it stays so, look into libvirtd's log on the host",
        )
