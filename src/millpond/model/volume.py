"""Volumes of storage pools, and what pools can do."""

from dataclasses import dataclass

from millpond.model.formats import DiskFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume that exists. A snapshot of facts, not a live handle."""

    pool: str
    name: str
    path: str
    capacity: int
    allocation: int
    backing_path: str | None = None
    reported_format: str | None = None
    """What libvirt says, which it may have guessed from bytes that a guest wrote: for people's
    eyes, never for a decision."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapabilities:
    """Decisions read these facts; they never compare the pool's type or name."""

    formats: frozenset[DiskFormat]
    overlays: bool = False
    """A new volume may name a backing volume."""
    copies_across_pools: bool = False
    """createXMLFrom takes a volume of another pool."""
    clones: bool = False
    """A copy within the pool shares what it has in common with its source."""
    grows: bool = False
    """A volume can be made larger in place."""
    sparse: bool = False
    """A new volume takes no space and reads as zeros. Elsewhere it takes all of it at once, and
    what was there before must be wiped: it is another server's."""
    volume_disks: bool = False
    """A domain may name its volumes by ``<disk type='volume'>``."""
    remote: bool = False
    """Served by others, who may come later than libvirt or go: it is started when needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    capacity: int
    allocation: int
    available: int
