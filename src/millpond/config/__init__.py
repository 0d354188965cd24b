"""From nova.conf's options to frozen settings; the only reader of oslo.config."""

from millpond.config.checking import load, own_settings, settings_from, unread
from millpond.config.listing import ShownOption, list_options, sample
from millpond.config.options import list_opts, register, widen
from millpond.config.reader import DEFAULT_FILE, HANDLERS, files_of, read
from millpond.config.settings import (
    LOCAL,
    ComputeSettings,
    DirectoryPool,
    HostSettings,
    ImageCacheSettings,
    ImageSourceOption,
    LibvirtSettings,
    PoolSettings,
    RbdSettings,
    SchedulerSettings,
    Settings,
    VirtTypeOption,
)

__all__ = [
    "DEFAULT_FILE",
    "HANDLERS",
    "LOCAL",
    "ComputeSettings",
    "DirectoryPool",
    "HostSettings",
    "ImageCacheSettings",
    "ImageSourceOption",
    "LibvirtSettings",
    "PoolSettings",
    "RbdSettings",
    "SchedulerSettings",
    "Settings",
    "ShownOption",
    "VirtTypeOption",
    "files_of",
    "list_options",
    "list_opts",
    "load",
    "own_settings",
    "read",
    "register",
    "sample",
    "settings_from",
    "unread",
    "widen",
]
