"""Volumes of storage pools, and what pools can do."""

from dataclasses import dataclass
from enum import StrEnum

from millpond.errors import Unsupported
from millpond.model.formats import DiskFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume that exists. A snapshot of facts, not a live handle."""

    pool: str
    name: str
    path: str
    capacity: int
    allocation: int
    length: int = 0
    """Of its file or device; ``capacity`` is that of the disk which libvirt sees in it."""
    changed: str | None = None
    """When its inode was last changed, in seconds: a copy of it has another time."""
    read_only: bool = False
    """For everybody but root: so are templates made, and nothing else."""
    backing_path: str | None = None
    reported_format: str | None = None
    """What libvirt says, which it may have guessed from bytes that a guest wrote: for people's
    eyes, and to know when libvirt is mistaken; never obeyed."""

    def is_seen_as(self, format: DiskFormat) -> bool:
        """Whether libvirt takes it for what it is. Else what it says and does of it follows bytes
        that a guest or the maker of an image wrote (trap 2)."""
        return self.reported_format in (None, format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    path: str
    format: DiskFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A volume that we want."""

    name: str
    format: DiskFormat
    capacity: int
    backing: Backing | None = None
    read_only: bool = False
    """For everybody but root, who makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapabilities:
    """Decisions read these facts; they never compare the pool's type or name."""

    formats: frozenset[DiskFormat]
    overlays: bool = False
    """A new volume may name a backing volume."""
    copies_across_pools: bool = False
    """createXMLFrom takes a volume of another pool."""
    grows: bool = False
    """A volume can be made larger in place."""
    sparse: bool = False
    """A new volume takes no space and reads as zeros. Elsewhere it takes all of it at once, and
    what was there before must be wiped: it is another server's."""
    uploads: bool = False
    """Content can be written to a volume through libvirt."""
    volume_disks: bool = False
    """A domain may name its volumes by ``<disk type='volume'>``."""
    remote: bool = False
    """Served by others, who may come later than libvirt or go: it is started when needed."""

    def refuse(self, spec: VolumeSpec, pool: str) -> None:
        """Raise what such a pool cannot do; libvirt would do something else and say nothing."""
        if spec.format not in self.formats:
            kept = ", ".join(sorted(self.formats))
            raise Unsupported(f"a {spec.format} volume", f"pool {pool} keeps {kept}")
        if spec.backing and not self.overlays:
            raise Unsupported("an overlay", f"pool {pool} has none")

    def refuse_source(self, source: Volume, pool: str) -> None:
        if source.pool != pool and not self.copies_across_pools:
            raise Unsupported(
                f"a copy of {source.pool}/{source.name}",
                f"pool {pool} copies only its own volumes",
            )


class ClearMethod(StrEnum):
    """The values of Nova's volume_clear."""

    ZERO = "zero"
    SHRED = "shred"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """How a volume is wiped that is deleted, where the next one would show what it held."""

    method: ClearMethod = ClearMethod.ZERO
    size: int = 0
    """Of what is cleared from the beginning; 0 is the whole volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    capacity: int
    allocation: int
    available: int
