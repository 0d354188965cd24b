"""Template to disk: what every backend promises."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from millpond.disks.grow_strategies import GrowStrategy
from millpond.libvirt.pool import Pool
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.layer import Chain, Layer
from millpond.model.names import ServerId
from millpond.model.operation import GrowMethod
from millpond.model.server import Content, Disk, TemplateRef
from millpond.model.template import Template


class PoolsOf(Protocol):
    """The pools of a host: for a new disk, and by the name in an old one's record (B13)."""

    @property
    def base(self) -> Pool: ...

    def for_disk(self, backend: Backend, role: str = "disk") -> Pool: ...

    def ensure(self, name: str) -> Pool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRequest:
    """A disk that is asked for."""

    server: ServerId
    role: str
    content: Content = Content.IMAGE
    size: int = 0
    """0: as large as its image."""
    image: Image | None = None
    """What it is made from; swap and ephemeral disks have templates of their own."""
    like: Disk | None = None
    """The one whose content it gets, on this host or another."""
    filesystem: str = ""
    """Of an ephemeral disk, if it is not the one of the configuration."""
    target: str = ""
    """What the guest is offered it as, where we write its domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """A file on this machine with what a disk holds, as one image."""

    path: Path
    format: DiskFormat
    compress: bool = False


class ImageBackend(Protocol):
    def plan(self, request: DiskRequest, template: TemplateRef | None) -> Disk:
        """The disk as it will be, for the record. Nothing is made yet. Its size is stated."""
        ...

    def create(self, disk: Disk, template: Template | None) -> Disk:
        """Make the disk of a record, empty without a template. One that was begun and not
        finished is recreated. The disk as it became: it may be larger."""
        ...

    def create_from_file(self, disk: Disk, image: ImageFile) -> Disk:
        """Make the disk of a record with what an image on this machine shows, and needs no longer
        afterwards. The same holds as of create()."""
        ...

    def chain(self, disk: Disk) -> Chain:
        """The layers of a disk as a domain names them, the top first."""
        ...

    def fill(self, disk: Disk, content: bytes) -> None:
        """Write a small disk's whole content into it."""
        ...

    def grow_strategy(self, disk: Disk, method: GrowMethod | None = None) -> GrowStrategy:
        """How it becomes larger; ``method`` is the one by which that was begun."""
        ...

    def repair(self, disk: Disk) -> None:
        """What a crash may have left; before a server starts on it."""
        ...

    def extract(self, disk: Disk, image: ImageFile, progress: Progress = noop) -> None:
        """What the disk holds, as one image; told of as many bytes as it has.
        Nobody writes to it: the server is off, or goes on in an overlay. A backend that supports
        snapshots gives what the disk held when it was frozen, and callers freeze it first."""
        ...

    def needs_temporary_volume(self, disk: Disk) -> bool:
        """Whether, while it is extracted, something lies next to it that tidy() removes."""
        ...

    def tidy(self, disk: Disk) -> None:
        """Remove what an extraction that was interrupted left next to it."""
        ...

    def merge(self, disk: Disk, above: Layer) -> None:
        """Write into the disk what an overlay above it holds; no server runs on either. The
        overlay stays as it is, so that this can be done again if it is interrupted. Raises
        NeedsHostFiles, and then it can be done by a server that runs."""
        ...

    def exists(self, disk: Disk) -> bool: ...

    def delete(self, disk: Disk) -> None:
        """A disk that is gone already is no error."""
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """What a backend may have besides, and to have it is the capability: its pool can take a
    point-in-time snapshot of a disk while a server writes."""

    def freeze(self, disk: Disk) -> None:
        """Keep what the disk holds now, in place of whatever was kept before."""
        ...

    def thaw(self, disk: Disk) -> None:
        """Forget it; a disk that is not frozen, or is gone, is no error."""
        ...


@runtime_checkable
class UploadsTemplates(Protocol):
    """Likewise: its disks are made from what its own pool has of a template."""

    def upload_template(self, template: Template) -> None:
        """What the first disk would do: have the template in that pool, too. Where it is there
        already, nothing is read and nothing written. The template's lock is held."""
        ...
