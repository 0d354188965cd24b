"""A server that moves to another host: both ends of it, and how its disks travel."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.model.operation import Details
from millpond.model.server import Disk, Server


class Way(StrEnum):
    """How a disk comes to the destination."""

    SHARED = "shared"
    """Both hosts see it: nothing is copied."""
    COPY = "copy"
    """Its volume; of an overlay, that alone."""
    WHOLE = "whole"
    """As one image, with what it is backed by."""
    NEW = "new"
    """Nothing comes: it is made there when the server starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateDetails(Details):
    migration: str
    """The id by which Placement knows what the server leaves behind."""
    source: str
    """The name of the host, as that of the next one."""
    destination: str
    here: tuple[Disk, ...]
    """As they are at the source."""
    there: tuple[Disk, ...]
    """The same disks, in the same order, at the destination."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """By their roles."""
    starts: bool = False
    """It ran, is stopped, and is started again."""
    post_copy: bool = False
    """Its guest may run at the destination before it has left the source."""

    def at_source(self, server: Server) -> Server:
        return replace(server, host=self.source, disks=self.here)

    def at_destination(self, server: Server) -> Server:
        return replace(server, host=self.destination, disks=self.there)

    def travels(self, disk: Disk) -> bool:
        """The destination has one of its own then."""
        return self.ways[disk.role] is not Way.SHARED

    def is_sent(self, disk: Disk) -> bool:
        return self.ways[disk.role] in (Way.COPY, Way.WHOLE)


def hosts_of(server: Server) -> frozenset[str]:
    """The one that it is on; and while it moves, the other one as well."""
    match server.operation and server.operation.details:
        case MigrateDetails(source=source, destination=destination):
            return frozenset({server.host, source, destination})
    return frozenset({server.host})
