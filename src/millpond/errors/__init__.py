"""Every error that Millpond raises on purpose, in parts by subject.

One base class. The facts are attributes, the message is one plain sentence, the hint says what
to do about it, and the exit status belongs to the class. ``docs/errors.md`` lists them.
"""

from millpond.errors.base import (
    BadInput as BadInput,
    Conflict as Conflict,
    GuestProblem as GuestProblem,
    HostProblem as HostProblem,
    MillpondError as MillpondError,
    NotFound as NotFound,
    Refused as Refused,
    ServiceProblem as ServiceProblem,
    StateProblem as StateProblem,
    ToolProblem as ToolProblem,
)
from millpond.errors.files import (
    BadConfiguration as BadConfiguration,
    BadName as BadName,
    BadOption as BadOption,
    BadSize as BadSize,
    DiskTooLarge as DiskTooLarge,
    DiskTooSmall as DiskTooSmall,
)
from millpond.errors.files import (
    CannotResume as CannotResume,
    DamagedRecord as DamagedRecord,
    FetchFailed as FetchFailed,
    FetchForbidden as FetchForbidden,
    FetchInterrupted as FetchInterrupted,
    FileNotReadable as FileNotReadable,
    NewerRecord as NewerRecord,
    StateNotReadable as StateNotReadable,
    StateNotWritable as StateNotWritable,
    ToolFailed as ToolFailed,
    UnreadableRecord as UnreadableRecord,
)
from millpond.errors.guests import (
    AgentSilent as AgentSilent,
    CloudInitFailed as CloudInitFailed,
    GuestNotUp as GuestNotUp,
)
from millpond.errors.hosts import (
    CephUnreachable as CephUnreachable,
    ConnectionLost as ConnectionLost,
    ExceedsHost as ExceedsHost,
    HostUnreachable as HostUnreachable,
    LibvirtFailed as LibvirtFailed,
    NetworkInactive as NetworkInactive,
    NetworkNotFound as NetworkNotFound,
    NoSpace as NoSpace,
    PoolBusy as PoolBusy,
    PoolElsewhere as PoolElsewhere,
    PoolInactive as PoolInactive,
    PoolNotFound as PoolNotFound,
    PoolOfAnotherType as PoolOfAnotherType,
    PoolUnusable as PoolUnusable,
    TooOld as TooOld,
    UnfitHost as UnfitHost,
    VolumeExists as VolumeExists,
    VolumeNotFound as VolumeNotFound,
)
from millpond.errors.images import (
    CacheFull as CacheFull,
    CacheOwnedByAnother as CacheOwnedByAnother,
    ImageInUse as ImageInUse,
    ImageNotActive as ImageNotActive,
    ImageNotFound as ImageNotFound,
    ImageRefused as ImageRefused,
    NotLinkable as NotLinkable,
    NotStreamable as NotStreamable,
    StreamNotServed as StreamNotServed,
    TemplateInUse as TemplateInUse,
    TemplateNotFound as TemplateNotFound,
    UploadFailed as UploadFailed,
    VolumeMissing as VolumeMissing,
    VolumeNotConnected as VolumeNotConnected,
    VolumeNotReady as VolumeNotReady,
)
from millpond.errors.placement import (
    BadRequirement as BadRequirement,
    HostsShareUuid as HostsShareUuid,
    ImageTypeUnknown as ImageTypeUnknown,
    NoRoom as NoRoom,
    NoSuchHost as NoSuchHost,
    NotInPlacement as NotInPlacement,
    NotReported as NotReported,
    NoValidHost as NoValidHost,
    PlacementFailed as PlacementFailed,
    PlacementBadRequest as PlacementBadRequest,
    PlacementProblem as PlacementProblem,
    PlacementRefused as PlacementRefused,
    PlacementUnreachable as PlacementUnreachable,
    ProviderRenamed as ProviderRenamed,
    ProviderTaken as ProviderTaken,
    StillAllocated as StillAllocated,
    UnknownTrait as UnknownTrait,
)
from millpond.errors.servers import (
    Ambiguous as Ambiguous,
    ArchiveRefused as ArchiveRefused,
    DiskInUse as DiskInUse,
    Busy as Busy,
    DiskNotFound as DiskNotFound,
    DiskOverlaid as DiskOverlaid,
    DiskRefused as DiskRefused,
    DetachTimeout as DetachTimeout,
)
from millpond.errors.servers import (
    GuestStaysOn as GuestStaysOn,
    GuestWritesFaster as GuestWritesFaster,
    HostNotConfigured as HostNotConfigured,
    Interrupted as Interrupted,
    LeftUnfinished as LeftUnfinished,
    NameTaken as NameTaken,
    NoAddress as NoAddress,
    NeedsHostFiles as NeedsHostFiles,
    NoConsole as NoConsole,
    NotQuiesced as NotQuiesced,
    NotWrittenBack as NotWrittenBack,
    OverlayUnclear as OverlayUnclear,
    StillNeeded as StillNeeded,
    UnknownOperation as UnknownOperation,
    Unsupported as Unsupported,
    WrongState as WrongState,
)
from millpond.errors.base import Tool as Tool
