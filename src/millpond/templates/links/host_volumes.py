"""Volumes that the host itself has to reach: devices and files, each under a name in the base
pool that stays the same when the device's does not (B42)."""

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from millpond.errors import VolumeNotConnected
from millpond.model.cloud import LinkAccess
from millpond.model.layer import FileSource
from millpond.system import acl, files
from millpond.system.process import run


class Connector(Protocol):
    """system/brick.py"""

    def connect(self, connection: Mapping[str, Any], name: str) -> Path: ...

    def disconnect(self, connection: Mapping[str, Any], name: str) -> None: ...


class HostVolumes:
    def __init__(self, access: LinkAccess) -> None:
        self._access = access
        self._mounts = access.state / "mnt"

    def connect(self, template: str, connection: Mapping[str, Any]) -> FileSource:
        """The device or the file, for us to look at."""
        if self._connector is None:
            raise VolumeNotConnected("os-brick is not installed: pip install millpond[volumes]")
        path = self._connector.connect(connection, template)
        return FileSource(path=str(path), device=path.is_block_device())

    def enter(self, template: str, found: FileSource) -> FileSource:
        """Its name in the base pool. libvirt leaves the owner of a base alone, so QEMU's user is
        let read it here; nobody is let write."""
        self._let_read(Path(found.path))
        name = self._name(template)
        if not (name.is_symlink() and os.readlink(name) == found.path):
            self._remove_name(template)
            name.symlink_to(found.path)
            files.sync_directory(name.parent)
        return replace(found, path=str(name))

    def is_reachable(self, link: FileSource) -> bool:
        """Whether QEMU's user would find it there."""
        path, reader = Path(link.path), self._access.reader()
        if not link.device:
            return path.is_file()
        return path.is_block_device() and (not reader or acl.lets_read(path, reader))

    def release(self, template: str) -> None:
        """What is this template's alone: its name, and the mount of its share."""
        self._remove_name(template)
        for mount in (self._mounts / template).glob("*"):
            if mount.is_mount():
                run(["umount", str(mount)])
            mount.rmdir()
        if (self._mounts / template).exists():
            (self._mounts / template).rmdir()

    def disconnect(self, template: str, connection: Mapping[str, Any]) -> None:
        if self._connector:  # without it nothing was connected
            self._connector.disconnect(connection, template)

    def _name(self, template: str) -> Path:
        return self._access.bases / template

    def _remove_name(self, template: str) -> None:
        """A file of that name is a template that was downloaded, or somebody else's."""
        if self._name(template).is_symlink():
            self._name(template).unlink()

    def _let_read(self, path: Path) -> None:
        reader = self._access.reader()
        try:
            if path.is_block_device():
                if reader:
                    acl.let_read(path, reader)
            elif not path.stat().st_mode & stat.S_IROTH:
                raise VolumeNotConnected(f"QEMU's user may not read {path}")
        except OSError as error:
            reason = f"QEMU's user could not be let read {path}: {error.strerror}"
            raise VolumeNotConnected(reason) from error

    @cached_property
    def _connector(self) -> Connector | None:
        """By name, because not every host has it, and few commands need it. Its libraries load
        eventlet where there is one; loaded by another thread than the first, that makes who waits
        for the thread's end wait for ever. Another's process has loaded what it wants."""
        ours = self._access.own_process
        if ours:
            sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
        try:
            brick = resolve_name("millpond.system.brick:Brick")
        except ModuleNotFoundError:
            return None
        locks = self._access.state / "os-brick" if ours else None
        made: Connector = brick(self._mounts, locks)
        return made
