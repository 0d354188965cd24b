"""The layers of a disk, the top first: where the bytes of each are, and what they are."""

from dataclasses import dataclass
from pathlib import Path

from millpond.model.formats import DiskFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSource:
    """By names, so that a pool can move without any domain being changed (B17)."""

    pool: str
    volume: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """What lies in no pool, and what a tool opens by its path."""

    path: str
    device: bool = False
    """A block device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CephAccess:
    """A pool of a Ceph cluster, and how to reach it."""

    pool: str
    monitors: tuple[tuple[str, int | None], ...]
    user: str = ""
    """Without ``client.``; empty if the cluster asks nobody who they are."""
    secret: str = ""
    """UUID of the libvirt secret that holds the user's key."""
    conf: Path | None = None
    """For tools on this machine, which take the key from the keyring that it names. None: Ceph's
    usual places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdSource:
    access: CephAccess
    image: str
    snapshot: str = ""

    @property
    def location(self) -> str:
        """As libvirt names it, the snapshot apart."""
        return f"{self.access.pool}/{self.image}"

    @property
    def name(self) -> str:
        """As Ceph's tools write it."""
        return f"{self.location}@{self.snapshot}" if self.snapshot else self.location


@dataclass(frozen=True, slots=True, kw_only=True)
class IscsiSource:
    """A LUN that QEMU reaches by itself: the host's kernel has no part in it."""

    host: str
    port: int
    target: str
    lun: int
    initiator: str = ""
    """Who we say we are; a target may serve nobody else."""

    @property
    def location(self) -> str:
        """As libvirt names it."""
        return f"{self.target}/{self.lun}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NbdSource:
    """What a process on the host itself serves, of bytes that have not all arrived yet."""

    socket: Path
    """The same path on each host, so that a domain that moves finds it there, too."""
    export: str = ""


Source = VolumeSource | FileSource | RbdSource | IscsiSource | NbdSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    source: Source
    format: DiskFormat
    """Stated from our record: nothing looks at the bytes to find out (trap 2)."""
    length: int | None = None
    """Of bytes that lie at the beginning of something longer, such as a volume of whole GiB."""


Chain = tuple[Layer, ...]
