"""A server's disks between Nova's legacy layout and the pools: where each is, and will be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.model.operation import Details
from millpond.model.server import Disk, Server


class Way(StrEnum):
    """How a disk comes to its new place."""

    RENAME = "rename"
    """One file system has both: no byte is copied."""
    COPY = "copy"
    """Into another one, while nobody writes to it."""
    MIRROR = "mirror"
    """By QEMU, while its guest writes to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionDetails(Details):
    here: tuple[Disk, ...]
    """Those that move, as they are before."""
    there: tuple[Disk, ...]
    """The same, in the same order, as they are afterwards."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """By their roles."""
    starts: bool = False
    """It ran, is stopped, and is started again."""
    prepares: bool = False
    """Placement counts its disks, or they are backed by bases of Nova's."""

    @property
    def is_live(self) -> bool:
        return Way.MIRROR in self.ways.values()

    @property
    def is_back(self) -> bool:
        """It is given back to Nova."""
        return all(each.path for each in self.there)

    def moves(self) -> Iterator[tuple[Disk, Disk, Way]]:
        for here, there in zip(self.here, self.there, strict=True):
            yield here, there, self.ways[here.role]

    def before(self, server: Server) -> Server:
        return _with(server, self.here)

    def after(self, server: Server) -> Server:
        return _with(server, self.there)


def is_moving(server: Server) -> bool:
    """Its disks are on their way between the two places, or were left there."""
    operation = server.operation
    return operation is not None and isinstance(operation.details, TransitionDetails)


def _with(server: Server, disks: tuple[Disk, ...]) -> Server:
    by_role = {each.role: each for each in disks}
    return replace(server, disks=tuple(by_role.get(each.role, each) for each in server.disks))
