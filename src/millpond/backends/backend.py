"""Template to disk: what every backend promises."""

from dataclasses import dataclass
from typing import Protocol

from millpond.model.names import ServerId
from millpond.model.server import Disk, TemplateRef
from millpond.model.template import Template
from millpond.storage.pool import Pool


class PoolsOf(Protocol):
    """The pools of a host: by the role of a new disk, by the name in an old one's record (B13)."""

    @property
    def base(self) -> Pool: ...

    def for_role(self, role: str) -> Pool: ...

    def named(self, name: str) -> Pool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskWanted:
    server: ServerId
    role: str
    size: int
    target: str
    template: TemplateRef


class ImageBackend(Protocol):
    def plan(self, wanted: DiskWanted) -> Disk:
        """The disk as it will be, for the record. Nothing is made yet."""
        ...

    def create(self, disk: Disk, template: Template) -> None:
        """Make the disk of a record. One that was begun and not finished is made anew."""
        ...

    def exists(self, disk: Disk) -> bool: ...

    def delete(self, disk: Disk) -> None:
        """A disk that is gone already is no error."""
        ...
