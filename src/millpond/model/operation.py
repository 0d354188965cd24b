"""The operation under way on a server, and the details that its verb keeps in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.model.layer import VolumeSource
from millpond.model.names import rebased_name

ROOT = "disk"
"""The role of a server's root disk."""

Overlays = Mapping[str, VolumeSource]
"""What takes the writes of a running server while its disks are copied, by their roles."""


class Details:
    """What a verb was asked for, where the server's record does not say it. The operation's verb
    decides which of these it is."""

    __slots__ = ()


class GrowMethod(StrEnum):
    """How a disk grows. Decided once: whoever resumes the operation continues by this method. The
    values are those of the journal."""

    RESIZE = "resized"
    """In place by libvirt; of a server that runs, by QEMU alone."""
    LVEXTEND = "extended"
    """In place, before a running server can be told."""
    REWRITE_FILE = "rewritten"
    """Copied into a larger file, which then takes its place."""
    COPY_VOLUME = "remade"
    """Copied to another volume, deleted, and made larger from there."""

    @property
    def only_off(self) -> bool:
        return self in (GrowMethod.REWRITE_FILE, GrowMethod.COPY_VOLUME)

    @property
    def only_forward(self) -> bool:
        """Begun, it is finished: there may be nothing left of the disk but its copy."""
        return self is GrowMethod.COPY_VOLUME


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowDetails(Details):
    role: str
    size: int
    method: GrowMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskDetails(Details):
    """Of the verbs that change which disks a server has."""

    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NicDetails(Details):
    """Of ``nic add`` and ``nic remove``."""

    mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertDetails(Details):
    """Of ``cdrom insert``."""

    adds_drive: bool = False
    """The server had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameDetails(Details):
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSizes(Details):
    """What a server had before a resize."""

    vcpus: int
    memory: int
    flavor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeDetails(FormerSizes):
    live: bool = False
    """Its guest is given the new ones while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildDetails(Details):
    """What it was made from before, and whether it ran."""

    image: str
    name: str
    format: str
    ran: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueDetails(Details):
    """Of ``rescue`` and ``unrescue``: whether it ran before."""

    ran: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDetails(Details):
    force: bool = False
    """What cannot be reached is left."""
    overlays: Overlays = field(default_factory=dict)
    """What a snapshot that was interrupted before has put above its disks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDetails(Details):
    """How disks are kept as they are while they are copied."""

    roles: tuple[str, ...] = (ROOT,)
    """Of the disks that are copied."""
    state: str = ""
    """Of the domain, when the snapshot began."""
    quiesces: bool = False
    """The guest agent is asked to freeze the guest's file systems for the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRunningDetails(SnapshotDetails):
    """Nobody writes to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSnapshotDetails(SnapshotDetails):
    """Their pools take the snapshots themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayDetails(SnapshotDetails):
    """The server writes to overlays meanwhile, but for disks whose pools take snapshots."""

    overlays: Overlays
    merging: bool = False
    """The domain that runs was started to merge, and its guest does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleDetails(Details):
    """What the server writes to while its disks are moved from a stream to the template's own
    file."""

    overlays: Overlays
    """Above the disks as they are, on the stream."""
    state: str = ""
    """Of the domain, when it began."""

    @property
    def rebased(self) -> Overlays:
        """Above the same disks on the file, by the same roles."""
        return {
            role: replace(each, volume=rebased_name(each.volume))
            for role, each in self.overlays.items()
        }

    @property
    def every_overlay(self) -> Overlays:
        rebased = {rebased_name(role): each for role, each in self.rebased.items()}
        return {**self.overlays, **rebased}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDetails(Details):
    """Of a verb that this version does not know: kept as they were found."""

    entries: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The operation under way and its step, written before the step is taken."""

    verb: str
    step: str
    started: str
    details: Details | None = None
